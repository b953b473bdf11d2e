package worker

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"
)

func TestValue(t *testing.T) {
	t.Parallel()

	t.Run("JSON comes back as it went", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			tree := drawJSON(t, 4)
			data, err := Marshal(tree)
			require.NoError(t, err)
			value, err := toValue(data)
			require.NoError(t, err)
			require.JSONEq(t, string(data), string(fromValue(value)))
		})
	})

	t.Run("integers decode into integers", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.Int64Range(-1<<53, 1<<53).Draw(t, "n")
			data, err := Marshal(n)
			require.NoError(t, err)
			value, err := toValue(data)
			require.NoError(t, err)
			var back int64
			require.NoError(t, json.Unmarshal(fromValue(value), &back))
			require.Equal(t, n, back)
		})
	})

	t.Run("an integer is kept exactly or refused", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.Int64().Draw(t, "n")
			data, err := Marshal(n)
			require.NoError(t, err)
			value, err := toValue(data)
			if err != nil {
				require.ErrorContains(t, err, "send it as a string")
				require.False(t, int64(float64(n)) == n && n > -1<<53 && n < 1<<53)
				return
			}
			var back float64
			require.NoError(t, json.Unmarshal(fromValue(value), &back))
			require.Equal(t, float64(n), back)
			require.Equal(t, n, int64(back))
		})
	})

	t.Run("nor is one kept whose double is written as another integer", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"-18014421451765630", "-18014421451765632", "9223372036854775807", "0.1234567890123456789", "1e-400"} {
			_, err := toValue([]byte(`{"a":[` + text + `]}`))
			require.ErrorContains(t, err, "a[0]")
			require.ErrorContains(t, err, "send it as a string")
		}
	})

	t.Run("what is not one JSON value is refused", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"{", "1 2", "nul", "[1,]", "\xff", "1e999", strings.Repeat("[", 102) + strings.Repeat("]", 102)} {
			_, err := toValue([]byte(bad))
			require.Error(t, err, bad)
		}
		for _, null := range []string{"", " ", "null", " null\n"} {
			value, err := toValue([]byte(null))
			require.NoError(t, err)
			require.Nil(t, value)
		}
	})

	t.Run("numbers that JSON does not have are null", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "null", string(fromValue(structpb.NewNumberValue(math.NaN()))))
		require.Equal(t, "null", string(fromValue(structpb.NewNumberValue(math.Inf(1)))))
	})
}

func TestCut(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.IntRange(0, 40).Draw(t, "limit")
		got := cut(storable(text), limit)
		require.LessOrEqual(t, len(got), max(limit, 0))
		require.NotContains(t, got, "\x00")
		require.Equal(t, strings.ToValidUTF8(got, "?"), got)
	})
}

func drawJSON(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.String().Draw(t, "string")
	case 3:
		return rapid.Float64Range(-1e15, 1e15).Draw(t, "number")
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "length") {
			list = append(list, drawJSON(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 4).Draw(t, "length") {
		object[rapid.String().Draw(t, "key")] = drawJSON(t, depth-1)
	}
	return object
}
