package engine

import "context"

// CancelRuns puts several cancels into one batch.
func (e *Engine) CancelRuns(ctx context.Context, cancels []Cancel) ([]Cancelled, []error) {
	cmds := make([]controlCommand, len(cancels))
	for i, c := range cancels {
		cmds[i] = &cancelCommand{Cancel: c}
	}
	errs := e.control.doAll(ctx, cmds)
	answers := make([]Cancelled, len(cancels))
	for i, cmd := range cmds {
		if errs[i] == nil {
			answers[i] = cmd.(*cancelCommand).answer //nolint:forcetypeassert // made above
		}
	}
	return answers, errs
}

// MaxAncestors is how many runs a retry looks back.
const MaxAncestors = maxAncestors

// FiringSeats is how many transactions fire at the same time.
const FiringSeats = firingSeats
