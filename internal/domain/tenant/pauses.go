package tenant

import (
	"maps"
	"time"

	"go.arco.dev/servo/internal/base/event"
)

type (
	// AssetPaused delays new tasks of an asset, in every run of the workspace.
	AssetPaused struct {
		Asset  string `json:"asset"`
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"` // display name
	}
	// AssetResumed releases them.
	AssetResumed struct {
		Asset  string `json:"asset"`
		Reason string `json:"reason,omitempty"`
		By     string `json:"by,omitempty"`
	}
)

// EventType implements event.Body.
func (AssetPaused) EventType() event.Type  { return "workspace.asset_paused" }
func (AssetResumed) EventType() event.Type { return "workspace.asset_resumed" }

// Pause records since when, by whom and why an asset is paused.
type Pause struct {
	At     time.Time
	By     string
	Reason string
}

// Pauses are the paused assets of a workspace, by key.
type Pauses map[string]Pause

// with and without return copies, because states share their pauses.
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
