package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/run"
)

// tale is a run of a chain whose first task lost its first worker, and what its workers
// wrote down. Tests spoil it.
type tale struct {
	trigger trigger
	history *history
	notes   []note
	orderly map[string]bool
}

const (
	deadWorker = "w0-1"
	goodWorker = "w1-1"
)

func newTale() *tale {
	s := shapes()[0]
	t := &tale{
		trigger: trigger{key: "k", tenant: "acme", shape: s},
		history: &history{id: "r", tenant: "acme", pipeline: s.name, key: "k", state: run.RunSucceeded, tasks: map[string]*story{}},
		orderly: map[string]bool{goodWorker: true},
	}
	want := expect(s, "k")
	for i, n := range s.nodes {
		of := place{Asset: n.key}
		m := made{Value: want[of].value, Stamp: fmt.Sprintf("stamp-%d", i), Saw: map[string]string{}}
		if i > 0 {
			m.Saw[n.upstream[0]] = fmt.Sprintf("stamp-%d", i-1)
		}
		one := &story{id: fmt.Sprintf("t%d", i), place: of, state: run.Succeeded, result: encode(m)}
		attempt := 1
		if i == 0 {
			one.events = append(one.events, run.TaskClaimed{Attempt: 1}, run.TaskReturned{Reason: run.ReturnWorkerDied})
			t.notes = append(t.notes, note{Task: "t0", Attempt: 1, What: noteResult, Stamp: "never", who: deadWorker},
				note{Task: "t0", Attempt: 1, What: noteAnswer, Action: actComplete, Refused: string(fault.Stale), who: deadWorker})
			attempt = 2
		}
		one.events = append(one.events, run.TaskClaimed{Attempt: int32(attempt)}, run.TaskSucceeded{Result: one.result})
		t.notes = append(t.notes, note{Task: one.id, Attempt: attempt, What: noteResult, Stamp: m.Stamp, who: goodWorker},
			note{Task: one.id, Attempt: attempt, What: noteAnswer, Action: actComplete, who: goodWorker})
		t.history.tasks[one.id] = one
	}
	return t
}

func encode(m made) json.RawMessage {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return data
}

// remake replaces the result of a task, in its row and in its events.
func (t *tale) remake(id string, change func(*made)) {
	var m made
	s := t.history.tasks[id]
	if err := json.Unmarshal(s.result, &m); err != nil {
		panic(err)
	}
	change(&m)
	s.result = encode(m)
	s.events[len(s.events)-1] = run.TaskSucceeded{Result: s.result}
}

func (t *tale) audit() string {
	return strings.Join(auditRun(t.history, t.trigger.shape, gather(t.notes, t.orderly)), "\n")
}

func TestAudit(t *testing.T) {
	t.Parallel()

	t.Run("a true tale passes", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, newTale().audit())
	})

	for claim, c := range map[string]struct {
		spoil func(t *tale)
		found string
	}{
		"a run that failed":            {func(t *tale) { t.history.state = run.RunFailed }, "it is FAILED"},
		"a missing task":               {func(t *tale) { delete(t.history.tasks, "t3") }, "chain/n3 is missing"},
		"a task that is not planned":   {func(t *tale) { t.history.tasks["t3"].place.Asset = "chain/x" }, "has no place in it"},
		"a duplicate task":             {func(t *tale) { t.history.tasks["t3"].place.Asset = "chain/n2" }, "exists twice"},
		"a task that did not end":      {func(t *tale) { s := t.history.tasks["t3"]; s.state, s.events = 0, s.events[:1] }, "in its row"},
		"a wrong value":                {func(t *tale) { t.remake("t9", func(m *made) { m.Value = "x" }) }, `chain/n9 made "x"`},
		"a lost upstream":              {func(t *tale) { t.remake("t9", func(m *made) { m.Saw = nil }) }, "saw 0 upstreams, not 1"},
		"an upstream that is not true": {func(t *tale) { t.remake("t1", func(m *made) { m.Saw["chain/n0"] = "never" }) }, "saw never of chain/n0"},
		"a result of another attempt":  {func(t *tale) { t.remake("t0", func(m *made) { m.Stamp = "never" }) }, "no worker has noted never"},
		"a row that is not its events": {func(t *tale) { t.history.tasks["t1"].result = encode(made{}) }, "in its row and"},
		"a task that ended twice": {func(t *tale) {
			s := t.history.tasks["t1"]
			s.events = append(s.events, s.events[len(s.events)-1])
		}, "task.succeeded comes after its end"},
		"two holders at once": {func(t *tale) {
			s := t.history.tasks["t0"]
			s.events = append([]event.Body{s.events[0]}, s.events[2:]...)
		}, "attempt 2 comes while another holds it"},
		"a claim that is not the next":    {func(t *tale) { t.history.tasks["t1"].events[0] = run.TaskClaimed{Attempt: 2} }, "attempt 2 is the claim number 1"},
		"a late report that counted":      {func(t *tale) { t.notes[3].Refused = string(fault.Stale) }, "got the answer that its complete was too late"},
		"an accepted report that did not": {func(t *tale) { t.notes[1].Refused = "" }, "got the answer that its complete was accepted"},
		"a refusal without a reason":      {func(t *tale) { t.notes[1].Refused = string(fault.Internal) }, "was refused its complete as INTERNAL"},
		"a result that was left unsaid":   {func(t *tale) { t.notes = t.notes[:len(t.notes)-1] }, "without an answer to its result"},
		"two workers with one attempt": {func(t *tale) {
			t.notes = append(t.notes, note{Task: "t1", Attempt: 1, What: noteResult, Stamp: "x", who: deadWorker})
		}, "have both worked on it"},
		"a cancel that was not requested": {func(t *tale) {
			s := t.history.tasks["t1"]
			s.events = append([]event.Body{run.TaskCancelRequested{}}, s.events...)
		}, "was not asked for"},
	} {
		t.Run("it finds "+claim, func(t *testing.T) {
			t.Parallel()
			tale := newTale()
			c.spoil(tale)
			require.Contains(t, tale.audit(), c.found)
		})
	}

	t.Run("a result that a dead worker did not report is no error", func(t *testing.T) {
		t.Parallel()
		tale := newTale()
		tale.notes = append(tale.notes[:1], tale.notes[2:]...)
		require.Empty(t, tale.audit())
	})
}

func TestContested(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(second), 0) }
	notes := []note{
		{At: at(1), Task: "t", Attempt: 1, What: noteBegin},
		{At: at(2), Task: "t", Attempt: 1, What: noteResult},
		{At: at(5), Task: "t", Attempt: 2, What: noteBegin},
		{At: at(9), Task: "t", Attempt: 2, What: noteResult},
	}
	for claim, c := range map[string]struct {
		answer note
		want   int
	}{
		"a late end meets the next attempt":          {note{At: at(7), Task: "t", Attempt: 1, What: noteAnswer, Action: actComplete, Refused: "STALE"}, 1},
		"an end before it meets no worker":           {note{At: at(4), Task: "t", Attempt: 1, What: noteAnswer, Action: actComplete}, 0},
		"an end after it meets no worker":            {note{At: at(10), Task: "t", Attempt: 1, What: noteAnswer, Action: actComplete}, 0},
		"an attempt does not meet itself":            {note{At: at(7), Task: "t", Attempt: 2, What: noteAnswer, Action: actComplete}, 0},
		"what ends no attempt does not count":        {note{At: at(7), Task: "t", Attempt: 1, What: noteAnswer, Action: actOther}, 0},
		"another task's attempts are of no interest": {note{At: at(7), Task: "u", Attempt: 1, What: noteAnswer, Action: actComplete}, 0},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, contested(append(slices.Clone(notes), c.answer)))
		})
	}
}

func TestAuditTriggers(t *testing.T) {
	t.Parallel()
	tale := newTale()
	second := *tale.history
	second.id = "r2"
	unrequested := second
	unrequested.key = "x"
	sent, answered := []trigger{tale.trigger}, map[string]string{"k": "r"}

	for claim, c := range map[string]struct {
		runs  map[string]*history
		found string
	}{
		"one run for one trigger is as it should be": {map[string]*history{"r": tale.history}, ""},
		"it finds a trigger without a run":           {nil, "has 0 runs"},
		"it finds a trigger with two runs":           {map[string]*history{"r": tale.history, "r2": &second}, "has 2 runs"},
		"it finds a run that is not the answer":      {map[string]*history{"r2": &second}, "was answered with run r and has r2"},
		"it finds a run that was not requested":      {map[string]*history{"r": tale.history, "r2": &unrequested}, "was never asked for"},
	} {
		t.Run(claim, func(t *testing.T) {
			t.Parallel()
			wrong := strings.Join(auditTriggers(sent, answered, c.runs), "\n")
			if c.found == "" {
				require.Empty(t, wrong)
			}
			require.Contains(t, wrong, c.found)
		})
	}
}
