package servo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/worker"
)

// None is the type of parameters or results of functions that have none.
type None = struct{}

// Asset registers the function that produces an asset, under the asset's key (or the handler name in
// the manifest). The parameters of the run are decoded into P: fields that P does not have are
// ignored, and a value of the wrong type fails the task. The result is encoded as JSON. It must be
// small, at most 64 KiB: store data elsewhere and return a reference to it.
//
// Options declare the asset: upstreams, partitions, output, checks, retries. `servo deploy --go` deploys
// what they declare. A program whose manifest is written by hand needs none.
//
// Register all assets before the worker starts. Asset panics if the key is registered already, if the
// function is nil, or if the worker has started.
func Asset[P, R any](w *Worker, key string, function func(ctx context.Context, task *Task, parameters P) (R, error), options ...AssetOption) {
	if key == "" {
		panic("servo: the asset key is empty; use a key such as gold/revenue")
	}
	if function == nil {
		panic("servo: asset " + key + " has no function")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		panic("servo: asset " + key + " is registered after the worker was started")
	}
	w.declare(asset.Asset{Key: key, Go: &asset.Go{}}, options)
	w.handlers.Add(key, func(ctx context.Context, t *worker.Task) (worker.Result, error) {
		task := taskOf(t)
		parameters, err := decodeParameters[P](t.Parameters())
		if err != nil {
			return worker.Result{}, outward(err)
		}
		result, err := function(ctx, task, parameters)
		if err != nil {
			return worker.Result{}, outward(err)
		}
		encoded, err := encodeResult(result)
		return worker.Result{JSON: encoded, Partial: task.partial.Load()}, outward(err)
	})
}

func decodeParameters[P any](data json.RawMessage) (P, error) {
	var parameters P
	if _, none := any(parameters).(None); none {
		return parameters, nil
	}
	err := json.Unmarshal(data, &parameters)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return parameters, &Error{
			Code: InvalidConfiguration, Message: fmt.Sprintf("parameter %s is a %s, the function expects %s", wrong.Field, wrong.Value, wrong.Type),
			SuggestedAction: "declare the parameter in the pipeline with the type that the function expects", Err: err,
		}
	}
	if err != nil {
		return parameters, &Error{Code: InvalidConfiguration, Message: "the parameters cannot be decoded: " + err.Error(), Err: err}
	}
	return parameters, nil
}

func encodeResult[R any](result R) (json.RawMessage, error) {
	if _, none := any(result).(None); none {
		return nil, nil
	}
	encoded, err := worker.Marshal(result)
	if err != nil {
		return nil, &Error{Code: UserCodeException, Message: "the result cannot be encoded as JSON: " + err.Error(), Err: err}
	}
	return encoded, nil
}

// outward converts an error to the types of package worker.
func outward(err error) error {
	if err == nil {
		return nil
	}
	if yield, ok := errors.AsType[*yieldError](err); ok {
		out := &worker.YieldError{}
		if yield.cursor != "" {
			out.Cursor = &yield.cursor
		}
		return out
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return &worker.Error{
			Code: e.Code, Message: err.Error(), Details: e.Details, SuggestedAction: e.SuggestedAction, NoRetry: e.NoRetry, Cause: err,
		}
	}
	return err
}
