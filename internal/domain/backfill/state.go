package backfill

import "fmt"

// State is the state of a backfill.
type State int16

// The states.
const (
	Pending   State = 1 // no run has started
	Running   State = 2
	Paused    State = 3 // no further run starts; started ones continue
	Succeeded State = 10
	Failed    State = 11
	Cancelled State = 12
)

// States returns all states, in the order of a backfill's life.
func States() []State { return []State{Pending, Running, Paused, Succeeded, Failed, Cancelled} }

// Terminal reports whether no further run starts unless the backfill is retried.
func (s State) Terminal() bool { return s >= Succeeded }

// String names the state.
func (s State) String() string {
	switch s {
	case Pending:
		return "PENDING"
	case Running:
		return "RUNNING"
	case Paused:
		return "PAUSED"
	case Succeeded:
		return "SUCCEEDED"
	case Failed:
		return "FAILED"
	case Cancelled:
		return "CANCELLED"
	}
	return fmt.Sprintf("State(%d)", int16(s))
}

// Command is the name of a command to a backfill.
type Command string

// The commands.
const (
	OnStartChunk Command = "start a run"
	OnEndChunk   Command = "record the end of a run"
	OnPause      Command = "pause"
	OnResume     Command = "resume"
	OnCancel     Command = "cancel"
	OnRetry      Command = "retry"
	OnStop       Command = "stop"
)

// Transition is one row of the machine: from any of these states, on this command, to one of those.
type Transition struct {
	From []State
	On   Command
	To   []State
}

// Transitions is the complete machine. A run that was started before its backfill failed or was cancelled
// still ends, and its partitions count.
var Transitions = []Transition{
	{From: []State{Pending, Running}, On: OnStartChunk, To: []State{Running}},
	{From: []State{Running}, On: OnEndChunk, To: []State{Running, Succeeded, Failed}},
	{From: []State{Paused}, On: OnEndChunk, To: []State{Paused, Succeeded, Failed}},
	{From: []State{Failed}, On: OnEndChunk, To: []State{Failed}},
	{From: []State{Cancelled}, On: OnEndChunk, To: []State{Cancelled}},
	{From: []State{Pending, Running}, On: OnPause, To: []State{Paused}},
	{From: []State{Paused}, On: OnResume, To: []State{Pending, Running}},
	{From: []State{Pending, Running, Paused}, On: OnCancel, To: []State{Cancelled}},
	{From: []State{Pending, Running}, On: OnStop, To: []State{Failed}}, // its next run cannot be planned
	{From: []State{Failed, Cancelled}, On: OnRetry, To: []State{Pending}},
}
