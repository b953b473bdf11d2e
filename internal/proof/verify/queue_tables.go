package verify

import (
	"strings"

	"go.arco.dev/servo/internal/domain/run"
)

// place is a set of queue tables.
type place uint8

const (
	inWaiting place = 1 << iota
	inReady
	inPool
	inLeases
	inRetry
)

// placeOf is the queue table of a task in this state; none when it has ended.
func placeOf(s run.TaskState) place {
	switch s {
	case run.Pending:
		return inWaiting
	case run.Ready:
		return inReady
	case run.Queued:
		return inPool
	case run.Dispatched, run.Running:
		return inLeases
	case run.RetryWait:
		return inRetry
	case run.Succeeded, run.Failed, run.Skipped, run.Cancelled:
	}
	return 0
}

// stateIn is a state whose tasks are in one table: the store names a table by it.
func (p place) stateIn() run.TaskState {
	switch p {
	case inWaiting:
		return run.Pending
	case inReady:
		return run.Ready
	case inPool:
		return run.Queued
	case inLeases:
		return run.Dispatched
	default:
		return run.RetryWait
	}
}

// each lists the tables of the set.
func (p place) each() []place {
	var list []place
	for one := inWaiting; one <= inRetry; one <<= 1 {
		if p&one != 0 {
			list = append(list, one)
		}
	}
	return list
}

func (p place) String() string {
	var names []string
	for _, one := range p.each() {
		switch one {
		case inWaiting:
			names = append(names, "waiting")
		case inReady:
			names = append(names, "ready_q")
		case inPool:
			names = append(names, "pool_q")
		case inLeases:
			names = append(names, "leases")
		case inRetry:
			names = append(names, "retry_q")
		}
	}
	return strings.Join(names, ", ")
}
