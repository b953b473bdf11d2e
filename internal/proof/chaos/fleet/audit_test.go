package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/run"
)

// evidence is what the workers have written down, by attempt.
type evidence struct {
	notes   map[holding][]note
	orderly map[string]bool // the lives that ended in good order
}

func gather(notes []note, orderly map[string]bool) evidence {
	e := evidence{notes: map[holding][]note{}, orderly: orderly}
	for _, n := range notes {
		e.notes[n.holding()] = append(e.notes[n.holding()], n)
	}
	return e
}

// findings are what is wrong, in words.
type findings []string

func (f *findings) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// auditTriggers looks for triggers without a run, or with two.
func auditTriggers(sent []trigger, answered map[string]string, runs map[string]*history) findings {
	var wrong findings
	made := map[string][]*history{}
	for _, h := range runs {
		made[h.tenant+" "+h.key] = append(made[h.tenant+" "+h.key], h)
	}
	for _, t := range sent {
		switch of := made[t.tenant+" "+t.key]; {
		case len(of) != 1:
			wrong.add("%s of %s has %d runs", t.key, t.tenant, len(of))
		case of[0].id != answered[t.key]:
			wrong.add("%s of %s was answered with run %s and has %s", t.key, t.tenant, answered[t.key], of[0].id)
		case of[0].pipeline != t.shape.name:
			wrong.add("%s of %s runs %s, not %s", t.key, t.tenant, of[0].pipeline, t.shape.name)
		}
		delete(made, t.tenant+" "+t.key)
	}
	for whose := range made {
		wrong.add("%s was never asked for", whose)
	}
	return wrong
}

// auditRun compares a run with its DAG and with what the workers wrote down.
func auditRun(h *history, s shape, e evidence) findings {
	var wrong findings
	if h.state != run.RunSucceeded {
		wrong.add("it is %s", h.state)
	}
	want := expect(s, h.key)
	results := map[place]made{}
	for _, id := range slices.Sorted(maps.Keys(h.tasks)) {
		task := h.tasks[id]
		if _, planned := want[task.place]; !planned {
			wrong.add("task %s (%s) has no place in it", id, task.place)
		}
		if _, twice := results[task.place]; twice {
			wrong.add("%s exists twice", task.place)
		}
		found, result := auditTask(task, e)
		wrong = append(wrong, found...)
		results[task.place] = result
	}
	for of, expected := range want {
		result, there := results[of]
		if !there {
			wrong.add("%s is missing", of)
			continue
		}
		if result.Value != expected.value {
			wrong.add("%s made %q, not %q", of, result.Value, expected.value)
		}
		if len(result.Saw) != len(expected.saw) {
			wrong.add("%s saw %d upstreams, not %d", of, len(result.Saw), len(expected.saw))
		}
		for _, u := range expected.saw {
			if saw := result.Saw[u.String()]; saw != results[u].Stamp {
				wrong.add("%s saw %s of %s, which made %s", of, saw, u, results[u].Stamp)
			}
		}
	}
	return wrong
}

// auditTask walks through the events of a task and gives its result.
func auditTask(s *story, e evidence) (findings, made) {
	var wrong findings
	complain := func(format string, args ...any) {
		wrong.add("task %s (%s): "+format, append([]any{s.id, s.place}, args...)...)
	}
	attempts, final := s.attempts(complain)
	if final == nil || s.state != run.Succeeded {
		complain("it is %s in its row", s.state)
	}
	for i, how := range attempts {
		of := holding{s.id, i + 1}
		for _, text := range auditHolding(how, e.notes[of], e.orderly) {
			complain("attempt %d, which ended as %q: %s", i+1, how, text)
		}
	}
	var result made
	if final == nil {
		return wrong, result
	}
	if err := json.Unmarshal(final.Result, &result); err != nil {
		complain("its result is %s: %v", final.Result, err)
		return wrong, result
	}
	var row made
	if err := json.Unmarshal(s.result, &row); err != nil || row.Stamp != result.Stamp || row.Value != result.Value {
		complain("its result is %s in its row and %s in its events", s.result, final.Result)
	}
	last := holding{s.id, len(attempts)}
	if !slices.ContainsFunc(e.notes[last], func(n note) bool { return n.What == noteResult && n.Stamp == result.Stamp }) {
		complain("its result was not created by %s: no worker has noted %s", last, result.Stamp)
	}
	return wrong, result
}

// attempts is how each attempt of a task ended, as its events record it, and its end.
func (s *story) attempts(complain func(string, ...any)) (ends []string, final *run.TaskSucceeded) {
	held := false
	end := func(how string) {
		if !held {
			complain("%s without a lease", how)
			return
		}
		held = false
		ends[len(ends)-1] = how
	}
	for _, body := range s.events {
		if final != nil {
			complain("%s comes after its end", body.EventType())
		}
		switch b := body.(type) {
		case run.TaskClaimed:
			if held {
				complain("attempt %d comes while another holds it", b.Attempt)
			}
			held, ends = true, append(ends, "")
			if int(b.Attempt) != len(ends) {
				complain("attempt %d is the claim number %d", b.Attempt, len(ends))
			}
		case run.TaskReturned:
			end("returned " + string(b.Reason))
		case run.TaskRetrying:
			end("retrying " + b.Failure.Code)
		case run.TaskSucceeded:
			end("succeeded")
			final = &b
		case run.TaskFailed:
			end("failed " + b.Failure.Code)
		case run.TaskSkipped, run.TaskCancelled, run.TaskCancelRequested:
			complain("%s was not asked for", body.EventType())
		}
	}
	return ends, final
}

// endAs is how an attempt ends when this action of its worker is accepted.
func endAs(action string) []string {
	switch action {
	case actComplete:
		return []string{"succeeded"}
	case actYield:
		return []string{"returned " + string(run.ReturnYielded)}
	case actFail + " " + run.CodeInterrupted:
		return []string{"returned " + string(run.ReturnInterrupted)}
	case actFail + " " + servoNetworkError:
		return []string{"retrying " + servoNetworkError}
	}
	return nil
}

const servoNetworkError = "NETWORK_ERROR"

// auditHolding compares how an attempt ended with the answers to its worker.
func auditHolding(how string, notes []note, orderly map[string]bool) findings {
	var wrong findings
	settled := false
	for _, n := range notes {
		switch {
		case n.What == noteLost:
			settled = true
		case n.What != noteAnswer:
		case n.Refused == "":
			settled = true
			if !slices.Contains(endAs(n.Action), how) {
				wrong.add("%s got the answer that its %s was accepted", n.who, n.Action)
			}
		case n.Refused == string(fault.Stale):
			settled = true
			if ends(n.Action) && slices.Contains(endAs(n.Action), how) {
				wrong.add("%s got the answer that its %s was too late", n.who, n.Action)
			}
		case n.Refused != string(fault.Unavailable):
			wrong.add("%s was refused its %s as %s", n.who, n.Action, n.Refused)
		}
	}
	for _, n := range notes {
		if n.What == noteResult && !settled && orderly[n.who] {
			wrong.add("%s has ended in good order without an answer to its result", n.who)
		}
		if n.What == noteResult && n.who != notes[0].who {
			wrong.add("%s and %s have both worked on it", n.who, notes[0].who)
		}
	}
	return wrong
}
