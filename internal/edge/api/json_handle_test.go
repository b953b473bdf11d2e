package api_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/store"
)

// drawValue draws any JSON value that can be kept.
func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	text := rapid.String().Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		return nil
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return rapid.Float64().Draw(t, "number")
	case 4:
		return text.Draw(t, "text")
	case 5:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		object[text.Draw(t, "key")] = drawValue(t, depth-1)
	}
	return object
}

func TestValues(t *testing.T) {
	t.Parallel()

	t.Run("every value is kept as the JSON that it means", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			want := drawValue(t, 4)
			value, err := structpb.NewValue(want)
			require.NoError(t, err)
			kept, err := api.JSONOf("result", value)
			require.NoError(t, err)
			var got any
			require.NoError(t, json.Unmarshal(kept, &got), string(kept))
			require.Equal(t, want, got)
			back, err := api.ValueOf(kept)
			require.NoError(t, err)
			require.Equal(t, want, back.AsInterface())
		})
	})

	t.Run("equal objects have equal text", func(t *testing.T) {
		t.Parallel()
		object, err := structpb.NewStruct(map[string]any{"b": 1, "a": []any{true, nil}, "c": map[string]any{"z": "x", "y": 1e300}})
		require.NoError(t, err)
		for range 20 {
			kept, err := api.JSONOfStruct("parameters", object)
			require.NoError(t, err)
			require.Equal(t, `{"a":[true,null],"b":1,"c":{"y":1e+300,"z":"x"}}`, string(kept))
		}
	})

	t.Run("nothing is nothing, and null is null", func(t *testing.T) {
		t.Parallel()
		kept, err := api.JSONOf("result", nil)
		require.NoError(t, err)
		require.Nil(t, kept)
		kept, err = api.JSONOf("result", structpb.NewNullValue())
		require.NoError(t, err)
		require.Equal(t, "null", string(kept))
		back, err := api.ValueOf(nil)
		require.NoError(t, err)
		require.Nil(t, back)
	})

	deep := structpb.NewNullValue()
	for range 101 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, bad := range map[string]struct {
		value *structpb.Value
		field string
	}{
		"NaN":                {structpb.NewNumberValue(math.NaN()), "result.a[1].b"},
		"infinity":           {structpb.NewNumberValue(math.Inf(-1)), "result.a[1].b"},
		"a zero character":   {structpb.NewStringValue("a\x00b"), "result.a[1].b"},
		"a value of no kind": {&structpb.Value{}, "result.a[1].b"},
		"a zero in a key": {
			structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"\x00": structpb.NewNullValue()}}),
			"result.a[1].b",
		},
		"too deep": {deep, "result.a[1].b" + strings.Repeat("[0]", 97)},
	} {
		t.Run(name+" is refused at its place", func(t *testing.T) {
			t.Parallel()
			inner := structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"b": bad.value}})
			list := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewNullValue(), inner}})
			_, err := api.JSONOf("result", structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"a": list}}))
			f, ok := fault.As(err)
			require.True(t, ok, err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, bad.field, f.Violation.Field)
		})
	}
}

func TestHandles(t *testing.T) {
	t.Parallel()
	draw := func(t *rapid.T) (store.TaskKey, int32, int64) {
		some := func(name string) uuid.UUID { return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name)) }
		return store.TaskKey{Tenant: id.Of[id.Tenant](some("tenant")), Run: id.Of[id.Run](some("run")), Task: id.Of[id.Task](some("task"))},
			rapid.Int32Min(1).Draw(t, "attempt"), rapid.Int64().Draw(t, "token")
	}

	t.Run("every handle comes back from its text, which fits into a request", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			key, attempt, token := draw(t)
			text := api.Handle(key, attempt, token)
			require.LessOrEqual(t, len(text), 200)
			gotKey, gotAttempt, gotToken, err := api.ReadHandle(text)
			require.NoError(t, err)
			require.Equal(t, key, gotKey)
			require.Equal(t, attempt, gotAttempt)
			require.Equal(t, token, gotToken)
		})
	})

	t.Run("what is read is what is written: no lease has two handles", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			text := []byte(api.Handle(draw(t)))
			text[rapid.IntRange(0, len(text)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			key, attempt, token, err := api.ReadHandle(string(text))
			if err == nil {
				require.Equal(t, string(text), api.Handle(key, attempt, token))
				return
			}
			require.True(t, fault.Is(err, fault.InvalidArgument), err)
			require.ErrorContains(t, err, "lease")
		})
	})

	good := api.Handle(store.TaskKey{}, 1, 1)
	for name, text := range map[string]string{
		"nothing": "", "half of one": good[:len(good)/2], "one with more": good + "A", "padding": good + "==",
		"another version": "Ag" + good[2:], "line breaks": good[:40] + "\n" + good[40:],
	} {
		t.Run(name+" is no handle", func(t *testing.T) {
			t.Parallel()
			_, _, _, err := api.ReadHandle(text)
			require.True(t, fault.Is(err, fault.InvalidArgument), err)
		})
	}
}
