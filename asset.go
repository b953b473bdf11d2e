package servo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"go.arco.dev/servo/internal/worker"
)

// None is for functions without parameters or without a result.
type None = struct{}

// Asset registers the function that makes an asset, under the asset's key (or the name that
// the manifest gives as its handler). The parameters of the run are decoded into P: fields
// that P does not have are ignored, values of the wrong type fail the task. What the
// function returns is encoded as JSON; it should be small, at most 64 KiB: data belongs
// elsewhere, and a reference to it here.
//
// Registering is for the start of a program: a key that is taken, a missing function and a
// worker that runs already are mistakes, and panic.
func Asset[P, R any](w *Worker, key string, function func(ctx context.Context, task *Task, parameters P) (R, error), options ...AssetOption) {
	if key == "" {
		panic("servo: an asset needs a key such as gold/revenue")
	}
	if function == nil {
		panic("servo: asset " + key + " has no function")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		panic("servo: asset " + key + " is registered after the worker was started")
	}
	for _, option := range options {
		option(w, key)
	}
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

// AssetOption says more about a registered function.
type AssetOption func(w *Worker, key string)

// Reads names the assets whose results the function reads with Upstream or MappedResults.
// `servo worker check` compares them with the upstream of the manifest.
func Reads(assets ...string) AssetOption {
	return func(w *Worker, key string) {
		if w.reads == nil {
			w.reads = map[string][]string{}
		}
		w.reads[key] = append(w.reads[key], assets...)
	}
}

func decodeParameters[P any](data json.RawMessage) (P, error) {
	var parameters P
	if _, none := any(parameters).(None); none {
		return parameters, nil
	}
	err := json.Unmarshal(data, &parameters)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return parameters, &Error{
			Code: InvalidConfiguration, Message: fmt.Sprintf("parameter %s is a %s, the function wants %s", wrong.Field, wrong.Value, wrong.Type),
			SuggestedAction: "declare the parameter in the pipeline with the type that the function wants", Err: err,
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

// outward is an error in the terms of the worker.
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
