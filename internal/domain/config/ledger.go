package config

import (
	"time"

	"go.arco.dev/servo/internal/base/id"
)

// Outcome is the result of a slot. The database stores the numbers.
type Outcome int16

// The outcomes of slots.
const (
	Fired             Outcome = 1
	SkippedOverlap    Outcome = 2 // another run held the lock
	SkippedPaused     Outcome = 3
	SkippedDisabled   Outcome = 4
	SkippedQuota      Outcome = 5
	SkippedDependency Outcome = 6
	SkippedCatchup    Outcome = 7 // missed, and dropped by the catch-up policy
	SkippedEdited     Outcome = 8 // between an edit or a move and the next slot after it
	Failed            Outcome = 9 // the run could not be created

	SkippedNoPartition Outcome = 10 // no partition was completed since the last slot that fired
)

var outcomes = map[Outcome]string{
	Fired: "FIRED", SkippedOverlap: "SKIPPED_OVERLAP", SkippedPaused: "SKIPPED_PAUSED", SkippedDisabled: "SKIPPED_DISABLED",
	SkippedQuota: "SKIPPED_QUOTA", SkippedDependency: "SKIPPED_DEPENDENCY", SkippedCatchup: "SKIPPED_CATCHUP",
	SkippedEdited: "SKIPPED_EDITED", Failed: "ERROR", SkippedNoPartition: "SKIPPED_NO_PARTITION",
}

func (o Outcome) String() string { return outcomes[o] }

// Range is a number of consecutive slots that were skipped for one reason.
type Range struct {
	From, To time.Time // the first and the last of them
	Slots    int64
	Outcome  Outcome
	Reason   string
	Version  int32   // of the config
	Run      *id.Run // the run that held the lock
}

// Continues reports whether a range has the same cause as the one before it.
func (r Range) Continues(before Range) bool {
	same := (r.Run == nil) == (before.Run == nil) && (r.Run == nil || *r.Run == *before.Run)
	return same && r.Outcome == before.Outcome && r.Reason == before.Reason && r.Version == before.Version
}

// Slot is a slot that fired.
type Slot struct {
	At         time.Time
	Run        id.Run
	Partitions []string // that it covers, such as date=2026-01-01..2026-01-03
}
