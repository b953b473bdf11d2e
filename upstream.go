package servo

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
)

// Upstream returns the result of an upstream asset, decoded into T. The manifest must declare the
// asset as an upstream of this one.
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

// MappedResults iterates over the results of all tasks of an asset that this task has waited for:
// those that an upstream has fanned out with a [Barrier]. They are read page by page, so there can be
// many. The iteration ends after an error.
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
			Code: SchemaViolation, Message: fmt.Sprintf("the result of %s cannot be decoded into %T: %v", asset, value, err),
			SuggestedAction: "use the type that the upstream asset returns", Err: err,
		}
	}
	return value, nil
}
