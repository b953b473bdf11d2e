package hello_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/hello"
)

func params() hello.Params {
	return hello.Params{Day: "2026-01-31", Orders: 40, WorkMS: 5, Network: "good"}
}

func TestExtracts(t *testing.T) {
	t.Parallel()

	t.Run("the same day has the same orders, another day has others", func(t *testing.T) {
		t.Parallel()
		first, err := hello.Orders(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, params())
		require.NoError(t, err)
		require.Len(t, first, 40)
		again, err := hello.Orders(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, params())
		require.NoError(t, err)
		require.Equal(t, first, again)
		next := params()
		next.Day = "2026-02-01"
		other, err := hello.Orders(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, next)
		require.NoError(t, err)
		require.NotEqual(t, first, other)
	})

	t.Run("an invalid number is a final failure", func(t *testing.T) {
		t.Parallel()
		for _, n := range []int{-1, 201} {
			p := params()
			p.Orders = n
			_, err := hello.Orders(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, p)
			var failure *servo.Error
			require.True(t, errors.As(err, &failure))
			require.Equal(t, servo.InvalidConfiguration, failure.Code)
		}
	})

	t.Run("every order has a customer", func(t *testing.T) {
		t.Parallel()
		orders, err := hello.Orders(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, params())
		require.NoError(t, err)
		customers, err := hello.Customers(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, params())
		require.NoError(t, err)
		known := map[int]bool{}
		for _, c := range customers {
			known[c.ID] = true
		}
		for _, o := range orders {
			require.True(t, known[o.Customer], o)
		}
	})
}

func TestEnriched(t *testing.T) {
	t.Parallel()
	input := servo.TestInput{Results: map[string]any{
		"bronze/orders":    []hello.Order{{ID: 1, Customer: 2, Cents: 700}},
		"bronze/customers": []hello.Customer{{ID: 2, Country: "AT"}},
	}}

	t.Run("orders get the country of their customer, and progress is reported", func(t *testing.T) {
		t.Parallel()
		task := servo.NewTestTask(input)
		got, err := hello.Enriched(t.Context(), task.Task, params())
		require.NoError(t, err)
		require.Equal(t, []hello.EnrichedOrder{{Order: hello.Order{ID: 1, Customer: 2, Cents: 700}, Country: "AT"}}, got)
		require.Len(t, task.Reported(), 5)
		require.Contains(t, task.Logged(), "stage=join")
	})

	t.Run("a cancelled task ends with the reason", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(servo.ErrCancelled)
		slow := params()
		slow.WorkMS = 3_600_000
		_, err := hello.Enriched(ctx, servo.NewTestTask(input).Task, slow)
		require.ErrorIs(t, err, servo.ErrCancelled)
	})
}

func TestQuality(t *testing.T) {
	t.Parallel()
	quality := func(t *testing.T, in servo.TestInput, network string, cents ...int64) (hello.Check, *servo.TestTask, error) {
		t.Helper()
		var orders []hello.Order
		for i, c := range cents {
			orders = append(orders, hello.Order{ID: i, Cents: c})
		}
		in.Results = map[string]any{"bronze/orders": orders}
		p := params()
		p.Network = network
		task := servo.NewTestTask(in)
		check, err := hello.Quality(t.Context(), task.Task, p)
		return check, task, err
	}

	t.Run("over a bad network the first attempt fails in a way that is tried again, the second does not", func(t *testing.T) {
		t.Parallel()
		_, _, err := quality(t, servo.TestInput{}, "bad", 1)
		var failure *servo.Error
		require.True(t, errors.As(err, &failure))
		require.Equal(t, servo.NetworkError, failure.Code)
		_, _, err = quality(t, servo.TestInput{Attempt: 2}, "bad", 1)
		require.NoError(t, err)
	})

	t.Run("over a shaky one it fails for some runs, for the same every time", func(t *testing.T) {
		t.Parallel()
		failed := 0
		for i := range 90 {
			run := strings.Repeat("x", i)
			_, _, err := quality(t, servo.TestInput{Run: run}, "shaky", 1)
			_, _, again := quality(t, servo.TestInput{Run: run}, "shaky", 1)
			require.Equal(t, err == nil, again == nil)
			if err != nil {
				failed++
			}
		}
		require.Positive(t, failed)
		require.Less(t, failed, 90)
	})

	t.Run("too many large orders are a flaw, not a failure", func(t *testing.T) {
		t.Parallel()
		check, task, err := quality(t, servo.TestInput{}, "good", 20_000, 20_500)
		require.NoError(t, err)
		require.Equal(t, hello.Check{Orders: 2, Suspicious: 2}, check)
		require.True(t, task.IsPartial())
	})
}

func TestRevenues(t *testing.T) {
	t.Parallel()
	task := servo.NewTestTask(servo.TestInput{Results: map[string]any{
		"silver/enriched": []hello.EnrichedOrder{
			{Order: hello.Order{Cents: 1005}, Country: "DE"}, {Order: hello.Order{Cents: 995}, Country: "AT"}, {Order: hello.Order{Cents: 10}, Country: "AT"},
		},
		"silver/quality": hello.Check{Passed: true},
	}})
	got, err := hello.Revenues(t.Context(), task.Task, params())
	require.NoError(t, err)
	require.Equal(t, hello.Revenue{
		Day: "2026-01-31", Orders: 3, Total: "20.10", Best: "AT", ByCountry: map[string]int64{"DE": 1005, "AT": 1005}, Checked: true,
	}, got)
}
