package servo

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
)

// Upstream is what an upstream asset has returned, decoded into T. The asset must be one that
// this one declares as upstream.
func Upstream[T any](ctx context.Context, task *Task, asset string) (T, error) {
	data, err := task.backend.Upstream(ctx, asset)
	if err != nil {
		var zero T
		return zero, err
	}
	return decodeResult[T](asset, data)
}

// MappedResult is the result of one of several tasks of an upstream asset.
type MappedResult[T any] struct {
	Task      string // its id
	Partition string
	Value     T
}

// MappedResults reads the results of all tasks of an asset that this one has waited for:
// those that an upstream has fanned out with a Barrier. They are read page by page, so there
// may be very many. After an error there are no more.
func MappedResults[T any](ctx context.Context, task *Task, asset string) iter.Seq2[MappedResult[T], error] {
	return func(yield func(MappedResult[T], error) bool) {
		for found, err := range task.backend.Mapped(ctx, asset) {
			result := MappedResult[T]{Task: found.Task, Partition: found.Partition}
			if err == nil {
				result.Value, err = decodeResult[T](asset, found.Result)
			}
			if !yield(result, err) || err != nil {
				return
			}
		}
	}
}

func decodeResult[T any](asset string, data json.RawMessage) (T, error) {
	var value T
	if err := json.Unmarshal(data, &value); err != nil {
		return value, &Error{
			Code: SchemaViolation, Message: fmt.Sprintf("the result of %s is no %T: %v", asset, value, err),
			SuggestedAction: "decode it into the type that the upstream asset returns", Err: err,
		}
	}
	return value, nil
}
