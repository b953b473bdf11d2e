package event_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

type painted struct {
	Colour string `json:"colour"`
	Coats  int    `json:"coats"`
}

func (painted) EventType() event.Type { return "wall.painted" }

func codec() *event.Codec {
	d := event.Define[painted]()
	d.Schema = 2
	d.Upcast = map[int16]func(json.RawMessage) (json.RawMessage, error){
		1: func(old json.RawMessage) (json.RawMessage, error) {
			var shape map[string]any
			if err := json.Unmarshal(old, &shape); err != nil {
				return nil, err
			}
			shape["coats"] = 1
			return json.Marshal(shape)
		},
	}
	return event.NewCodec(d)
}

func TestCodec(t *testing.T) {
	t.Parallel()

	t.Run("what is written is read back", func(t *testing.T) {
		t.Parallel()
		schema, data, err := codec().Encode(painted{Colour: "blue", Coats: 2})
		require.NoError(t, err)
		require.EqualValues(t, 2, schema)
		body, err := codec().Decode("wall.painted", schema, data)
		require.NoError(t, err)
		require.Equal(t, painted{Colour: "blue", Coats: 2}, body)
	})

	t.Run("an old shape is lifted to today's", func(t *testing.T) {
		t.Parallel()
		body, err := codec().Decode("wall.painted", 1, json.RawMessage(`{"colour":"red"}`))
		require.NoError(t, err)
		require.Equal(t, painted{Colour: "red", Coats: 1}, body)
	})

	t.Run("a newer shape and an unknown type are refused, not guessed at", func(t *testing.T) {
		t.Parallel()
		_, err := codec().Decode("wall.painted", 3, json.RawMessage(`{}`))
		require.True(t, fault.Is(err, fault.Conflict))
		_, err = codec().Decode("wall.razed", 1, json.RawMessage(`{}`))
		require.True(t, fault.Is(err, fault.Conflict))
	})
}
