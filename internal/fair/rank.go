package fair

import "time"

// ageing is how long a task must have waited to come before one that is a priority level
// above it. Because waiting counts for everybody at the same pace, the order of two tasks
// never changes, and a number that is written once says it.
const ageing = 10 * time.Minute

// Rank orders the ready tasks of one tenant and pool, the lowest first: by priority (10 is
// the most urgent), then by how long they are ready, where ten minutes of waiting are worth
// a level.
func Rank(priority int16, readySince time.Time) int64 {
	return readySince.Add(-time.Duration(priority) * ageing).UnixMicro()
}
