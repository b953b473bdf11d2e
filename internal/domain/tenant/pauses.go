package tenant

import (
	"maps"
	"time"

	"go.arco.dev/servo/internal/base/event"
)

type (
	// AssetPaused makes new tasks of an asset wait, in every run of the workspace.
	AssetPaused struct {
		Asset  string `json:"asset"`
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"` // for people
	}
	// AssetResumed lets them go on.
	AssetResumed struct {
		Asset  string `json:"asset"`
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"`
	}
)

// EventType implements event.Body.
func (AssetPaused) EventType() event.Type  { return "workspace.asset_paused" }
func (AssetResumed) EventType() event.Type { return "workspace.asset_resumed" }

// Pause says since when the new tasks of an asset wait, who wanted that and why.
type Pause struct {
	At     time.Time
	By     string
	Reason string
}

// Pauses are the paused assets of a workspace, by key.
type Pauses map[string]Pause

// with and without leave the pauses before as they were: folds share them.
func (p Pauses) with(body AssetPaused, e event.Event) Pauses {
	next := maps.Clone(p)
	if next == nil {
		next = Pauses{}
	}
	next[body.Asset] = Pause{At: e.At, By: body.By, Reason: body.Reason}
	return next
}

func (p Pauses) without(body AssetResumed) Pauses {
	next := maps.Clone(p)
	delete(next, body.Asset)
	return next
}
