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

// Handler is a Go function that makes an asset.
type Handler func(ctx context.Context, task *Task) (Result, error)

// Handlers executes assets of kind go: the functions that were registered.
type Handlers struct {
	byName map[string]Handler
}

// NewHandlers makes an empty set. Functions are added before the worker runs.
func NewHandlers() *Handlers { return &Handlers{byName: map[string]Handler{}} }

// Add registers a function. A name that is taken is a mistake in the program.
func (h *Handlers) Add(name string, handler Handler) {
	if _, taken := h.byName[name]; taken {
		panic(fmt.Sprintf("servo: asset %s is registered twice", name))
	}
	h.byName[name] = handler
}

// Names are the registered names, in order.
func (h *Handlers) Names() []string { return slices.Sorted(maps.Keys(h.byName)) }

// Kind is go.
func (*Handlers) Kind() string { return KindGo }

// Capabilities are the registered functions.
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

// maxNamed is how many handlers a message names.
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
		SuggestedAction: "register the handler, or give the asset a pool whose workers have it",
	}
}
