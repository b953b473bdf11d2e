package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/run"
)

// Handler is a Go function that produces an asset.
type Handler func(ctx context.Context, task *Task) (Result, error)

// Handlers executes assets of kind go with the registered functions.
type Handlers struct {
	byName map[string]Handler
	checks map[string]CheckFunction
}

// CheckFunction is a custom check in Go. An error is a failed check.
type CheckFunction func(ctx context.Context, task *Task) error

// NewHandlers returns an empty set. Functions must be added before the worker runs.
func NewHandlers() *Handlers {
	return &Handlers{byName: map[string]Handler{}, checks: map[string]CheckFunction{}}
}

// Add registers a function. It panics if the name is registered already.
func (h *Handlers) Add(name string, handler Handler) {
	if _, taken := h.byName[name]; taken {
		panic(fmt.Sprintf("servo: asset %s is registered twice", name))
	}
	h.byName[name] = handler
}

// AddCheck registers a custom check. It panics if the name is registered already.
func (h *Handlers) AddCheck(name string, check CheckFunction) {
	if _, taken := h.checks[name]; taken {
		panic(fmt.Sprintf("servo: check %s is registered twice", name))
	}
	h.checks[name] = check
}

// Check calls a custom check.
func (h *Handlers) Check(ctx context.Context, task *Task, function string) (err error) {
	check, known := h.checks[function]
	if !known {
		return fmt.Errorf("this worker has no check function %s%s", function, suggest.DidYouMean(function, slices.Sorted(maps.Keys(h.checks))))
	}
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panic: %v", value)
		}
	}()
	return check(ctx, task)
}

// Names returns the registered names, in order.
func (h *Handlers) Names() []string { return slices.Sorted(maps.Keys(h.byName)) }

// Kind returns go.
func (*Handlers) Kind() string { return KindGo }

// Capabilities returns the registered functions.
func (h *Handlers) Capabilities() []string {
	names := h.Names()
	for i, name := range names {
		names[i] = run.GoCapability(name)
	}
	return names
}

// Execute calls the function of a task's asset.
func (h *Handlers) Execute(ctx context.Context, task *Task) (Result, error) {
	name := task.Lease().GetCode().GetGo().GetHandler()
	if name == "" {
		name = task.Lease().GetAsset()
	}
	handler, known := h.byName[name]
	if !known {
		return Result{}, h.unknown(name)
	}
	return handler(ctx, task)
}

// maxNamed is how many handlers a message lists.
const maxNamed = 20

func (h *Handlers) unknown(name string) error {
	names := h.Names()
	has := "none"
	if len(names) > 0 {
		has = strings.Join(names[:min(len(names), maxNamed)], ", ")
	}
	if more := len(names) - maxNamed; more > 0 {
		has += fmt.Sprintf(" and %d more", more)
	}
	return &Error{
		Code:            codeUnknown,
		Message:         fmt.Sprintf("this worker has no handler %s%s (it has: %s)", name, suggest.DidYouMean(name, names), has),
		SuggestedAction: "register the handler, or use a pool whose workers have it",
	}
}
