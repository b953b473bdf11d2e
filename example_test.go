package servo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"go.arco.dev/servo"
)

type Order struct {
	ID     string  `json:"id"`
	Region string  `json:"region"`
	Amount float64 `json:"amount"`
}

type Revenue struct {
	Region string  `json:"region"`
	Total  float64 `json:"total"`
}

// A worker is a program: it registers functions under the keys of assets, and runs.
func Example() {
	main := func() {
		w := servo.NewWorker(servo.WorkerOptions{Server: "127.0.0.1:8081", Pools: []string{"default"}, Concurrency: 8})
		servo.Asset(w, "bronze/orders", func(context.Context, *servo.Task, servo.None) ([]Order, error) {
			return []Order{{ID: "1", Region: "eu", Amount: 12.5}}, nil
		})
		servo.Main(w)
	}
	_ = main
}

// A function's parameters are those that the run was triggered with, its result is what the
// assets downstream read.
func ExampleAsset() {
	type Params struct {
		Region string `json:"region"`
	}
	w := servo.NewWorker(servo.WorkerOptions{})
	servo.Asset(w, "gold/revenue", func(ctx context.Context, task *servo.Task, p Params) (Revenue, error) {
		orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
		if err != nil {
			return Revenue{}, err
		}
		revenue := Revenue{Region: p.Region}
		for _, o := range orders {
			if o.Region == p.Region {
				revenue.Total += o.Amount
			}
		}
		return revenue, nil
	})
	fmt.Println(w.Assets())
	// Output: [gold/revenue]
}

// An asset reads what its upstreams have returned.
func ExampleUpstream() {
	count := func(ctx context.Context, task *servo.Task, _ servo.None) (int, error) {
		orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
		return len(orders), err
	}

	task := servo.NewTestTask(servo.TestInput{Results: map[string]any{"bronze/orders": []Order{{ID: "1"}, {ID: "2"}}}})
	fmt.Println(count(context.Background(), task.Task, servo.None{}))
	// Output: 2 <nil>
}

// People who watch a run see how far its tasks are.
func ExampleTask_Progress() {
	load := func(_ context.Context, task *servo.Task, _ servo.None) (servo.None, error) {
		const pages = 3
		for page := range pages {
			// … load the page …
			task.Progress(servo.Progress{Phase: "LOAD", Stage: fmt.Sprintf("page %d of %d", page+1, pages), Fraction: float32(page+1) / pages, RecordsLoaded: int64(page+1) * 100})
		}
		return servo.None{}, nil
	}

	task := servo.NewTestTask(servo.TestInput{})
	_, _ = load(context.Background(), task.Task, servo.None{})
	last := task.Reported()[2]
	fmt.Println(last.Stage, last.Fraction, last.RecordsLoaded)
	// Output: page 3 of 3 1 300
}

// What a task logs is kept with the attempt.
func ExampleTask_Log() {
	_ = func(_ context.Context, task *servo.Task, _ servo.None) (servo.None, error) {
		log := task.Log().With("partition", task.Partition)
		log.Info("fetched", "records", 120)
		log.Warn("skipped", "record", "o-7", "reason", "no price")
		return servo.None{}, nil
	}
}

// A task that works through pages keeps its position in the cursor: a later attempt continues
// where this one was. With Yield the next page may be done by another worker.
func ExampleYield() {
	const pages = 3
	fetch := func(ctx context.Context, task *servo.Task, _ servo.None) (int, error) {
		page, _ := strconv.Atoi(task.Cursor())
		// … fetch the page, and write it so that a second time does no harm …
		if page+1 < pages {
			return 0, servo.Yield(strconv.Itoa(page + 1))
		}
		return pages, nil
	}

	task := servo.NewTestTask(servo.TestInput{Cursor: "1"})
	_, err := fetch(context.Background(), task.Task, servo.None{})
	fmt.Println(servo.YieldedAt(err))
	// Output: 2 true
}

// A task that does all pages itself advances its cursor after each.
func ExampleTask_Advance() {
	fetch := func(ctx context.Context, task *servo.Task, _ servo.None) (servo.None, error) {
		page, _ := strconv.Atoi(task.Cursor())
		for ; page < 3; page++ {
			// … fetch and write the page …
			if err := task.Advance(ctx, strconv.Itoa(page+1)); err != nil {
				return servo.None{}, err
			}
		}
		return servo.None{}, nil
	}

	task := servo.NewTestTask(servo.TestInput{Cursor: "1"})
	_, err := fetch(context.Background(), task.Task, servo.None{})
	fmt.Println(task.Cursors(), err)
	// Output: [2 3] <nil>
}

// A task can add tasks to its own run. What waits for it waits for them too, if it asks for a
// barrier, and reads their results.
func ExampleTask_FanOut() {
	scan := func(ctx context.Context, task *servo.Task, _ servo.None) (int, error) {
		parts := []servo.Mapped{{Asset: "silver/part", Partition: "eu"}, {Asset: "silver/part", Partition: "us"}}
		_, err := task.FanOut(ctx, parts, servo.Barrier())
		return len(parts), err
	}
	join := func(ctx context.Context, task *servo.Task, _ servo.None) (total int, err error) {
		for part, err := range servo.MappedResults[int](ctx, task, "silver/part") {
			if err != nil {
				return 0, err
			}
			total += part.Value
		}
		return total, nil
	}

	scanning := servo.NewTestTask(servo.TestInput{})
	_, _ = scan(context.Background(), scanning.Task, servo.None{})
	fmt.Println(scanning.FanOuts())

	joining := servo.NewTestTask(servo.TestInput{Mapped: map[string]map[string]any{"silver/part": {"eu": 3, "us": 4}}})
	fmt.Println(join(context.Background(), joining.Task, servo.None{}))
	// Output:
	// [{[{silver/part eu} {silver/part us}] true}]
	// 7 <nil>
}

// The code of an error decides whether the task is tried again; the asset's retry policy
// states how often and when.
func ExampleFail() {
	_ = func(context.Context, *servo.Task, servo.None) (servo.None, error) {
		answer, err := http.Get("http://127.0.0.1:9/rates")
		if err != nil {
			return servo.None{}, servo.Fail(servo.NetworkError, err) // tried again
		}
		defer answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusTooManyRequests:
			return servo.None{}, servo.Fail(servo.RateLimited, errors.New("too many calls"))
		case http.StatusForbidden:
			return servo.None{}, &servo.Error{ // final, with something for the reader
				Code: servo.AuthorizationFailed, Message: "the key may not read rates",
				Details: map[string]any{"status": answer.StatusCode}, SuggestedAction: "ask for the role rates.reader",
			}
		}
		return servo.None{}, nil
	}
}

// A success with a flaw is marked as such.
func ExampleTask_Partial() {
	load := func(_ context.Context, task *servo.Task, _ servo.None) (int, error) {
		loaded, skipped := 98, 2
		if skipped > 0 {
			task.Log().Warn("some records were skipped", "skipped", skipped)
			task.Partial()
		}
		return loaded, nil
	}

	task := servo.NewTestTask(servo.TestInput{})
	loaded, err := load(context.Background(), task.Task, servo.None{})
	fmt.Println(loaded, err, task.IsPartial())
	// Output: 98 <nil> true
}

// The context ends when the task should; its cause is the reason.
func ExampleTask_cancellation() {
	_ = func(ctx context.Context, task *servo.Task, _ servo.None) (servo.None, error) {
		for page := range 1000 {
			if ctx.Err() != nil {
				switch cause := context.Cause(ctx); {
				case errors.Is(cause, servo.ErrInterrupted): // the worker stops: continue on another worker
					return servo.None{}, servo.Yield(strconv.Itoa(page))
				default: // cancelled, timed out, or lost: clean up
					return servo.None{}, cause
				}
			}
			// … work on the page …
		}
		return servo.None{}, nil
	}
}

// A function is tested by calling it with a task that needs no server.
func ExampleNewTestTask() {
	revenue := func(ctx context.Context, task *servo.Task, region string) (Revenue, error) {
		orders, err := servo.Upstream[[]Order](ctx, task, "bronze/orders")
		if err != nil {
			return Revenue{}, err
		}
		r := Revenue{Region: region}
		for _, o := range orders {
			r.Total += o.Amount
		}
		task.Log().Info("summed", "orders", len(orders))
		return r, nil
	}

	task := servo.NewTestTask(servo.TestInput{
		Partition: "2026-01-01",
		Results:   map[string]any{"bronze/orders": []Order{{ID: "1", Amount: 2}, {ID: "2", Amount: 3}}},
	})
	got, err := revenue(context.Background(), task.Task, "eu")
	fmt.Println(got, err)
	// Output: {eu 5} <nil>
}
