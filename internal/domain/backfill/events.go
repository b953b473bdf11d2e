package backfill

import (
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
)

type (
	// Created creates a backfill of the partitions that its selection resolved to.
	Created struct {
		Workspace id.Workspace  `json:"workspace"`
		Settings  Settings      `json:"settings"`
		Set       partition.Set `json:"set"`
	}
	// ChunkStarted records that a run covers a chunk of the round.
	ChunkStarted struct {
		Round int32  `json:"round,omitempty"`
		Chunk int32  `json:"chunk"`
		Run   id.Run `json:"run"`
	}
	// ChunkEnded records how that run ended. Partitions of the chunk that are in neither set have
	// succeeded.
	ChunkEnded struct {
		Round   int32         `json:"round,omitempty"`
		Chunk   int32         `json:"chunk"`
		Run     id.Run        `json:"run"`
		Failed  partition.Set `json:"failed,omitzero"`
		Skipped partition.Set `json:"skipped,omitzero"` // skipped or cancelled
	}
	// PausedByCaller stops the start of further runs.
	PausedByCaller struct {
		Reason string `json:"reason,omitempty"`
	}
	// Resumed lets runs start again.
	Resumed struct{}
	// CancelledByCaller ends the backfill; its runs are cancelled.
	CancelledByCaller struct {
		Reason string `json:"reason,omitempty"`
	}
	// Ended ends the backfill: all its runs have ended, or too many partitions have failed.
	Ended struct {
		State  State  `json:"state"`
		Reason string `json:"reason,omitempty"`
	}
	// Retried begins a new round with the partitions in Set.
	Retried struct {
		Round int32         `json:"round"`
		Set   partition.Set `json:"set"`
		// Left are the partitions that were not started in the round before and are not part of this
		// one. They count as skipped.
		Left partition.Set `json:"left,omitzero"`
	}
)

// EventType implements event.Body.
func (Created) EventType() event.Type           { return "backfill.created" }
func (ChunkStarted) EventType() event.Type      { return "backfill.chunk_started" }
func (ChunkEnded) EventType() event.Type        { return "backfill.chunk_ended" }
func (PausedByCaller) EventType() event.Type    { return "backfill.paused" }
func (Resumed) EventType() event.Type           { return "backfill.resumed" }
func (CancelledByCaller) EventType() event.Type { return "backfill.cancelled" }
func (Ended) EventType() event.Type             { return "backfill.ended" }
func (Retried) EventType() event.Type           { return "backfill.retried" }

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[Created](), event.Define[ChunkStarted](), event.Define[ChunkEnded](), event.Define[PausedByCaller](),
		event.Define[Resumed](), event.Define[CancelledByCaller](), event.Define[Ended](), event.Define[Retried](),
	}
}
