package chaos

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/ledger"
	"go.arco.dev/servo/internal/domain/run"
)

// story is a run of one task that failed once and then succeeded, and the answers about
// it. Tests spoil it.
type story struct {
	history history
	answers []entry
	task    id.Task
}

const (
	firstToken  = 100
	secondToken = 200
)

func newStory() *story {
	s := &story{task: id.Of[id.Task](uuid.New())}
	of := id.Of[id.Run](uuid.New())
	s.history = history{run: of, state: run.RunSucceeded, tasks: map[id.Task]taskRow{s.task: {run.Succeeded, secondToken}}}
	s.add(of.UUID, 1, "t", run.RunCreated{})
	s.add(of.UUID, 2, "", run.RunEnded{State: run.RunSucceeded})
	s.add(s.task.UUID, 1, "", run.TaskQueued{})
	s.add(s.task.UUID, 2, "", run.TaskClaimed{Attempt: 1, Token: firstToken, Started: true})
	s.add(s.task.UUID, 3, "f", run.TaskRetrying{})
	s.add(s.task.UUID, 4, "", run.TaskReadied{})
	s.add(s.task.UUID, 5, "", run.TaskQueued{})
	s.add(s.task.UUID, 6, "", run.TaskClaimed{Attempt: 2, Token: secondToken, Started: true})
	s.add(s.task.UUID, 7, "c", run.TaskSucceeded{})
	s.answers = []entry{
		{Kind: kindTrigger, Trace: "t", Run: of},
		{Kind: kindReport, Trace: "f", Run: of, Task: s.task, Token: firstToken, Action: actFail, State: run.RetryWait},
		{Kind: kindReport, Trace: "late", Run: of, Task: s.task, Token: firstToken, Action: actComplete, Refused: string(fault.Stale)},
		{Kind: kindReport, Trace: "c", Run: of, Task: s.task, Token: secondToken, Action: actComplete, State: run.Succeeded},
	}
	return s
}

func (s *story) add(subject uuid.UUID, version int32, trace string, body event.Body) {
	s.history.events = append(s.history.events, event.Event{
		Run: s.history.run, Subject: subject, Version: version, Meta: event.Meta{Trace: trace}, Body: body,
	})
}

// event is the event of the story at a place of the task's stream.
func (s *story) event(version int32) *event.Event {
	for i := range s.history.events {
		if e := &s.history.events[i]; e.Subject == s.task.UUID && e.Version == version {
			return e
		}
	}
	return nil
}

func TestAudit(t *testing.T) {
	t.Parallel()

	t.Run("a true story passes", func(t *testing.T) {
		t.Parallel()
		s := newStory()
		require.Empty(t, auditRun(s.history, s.answers))
	})

	for claim, c := range map[string]struct {
		spoil func(s *story)
		found string
	}{
		"a run that never ended": {func(s *story) { s.history.state = run.RunRunning }, "it is RUNNING"},
		"a run that ended twice": {func(s *story) {
			s.add(s.history.run.UUID, 3, "", run.RunEnded{State: run.RunSucceeded})
		}, "run.ended comes after the end"},
		"a task left in a queue": {func(s *story) { s.history.queued = 1 }, "1 of its tasks remain in queues"},
		"a lost completion":      {func(s *story) { s.event(7).Meta.Trace = "another" }, "it was accepted, and left 0 events"},
		"a completion applied twice": {func(s *story) {
			s.add(s.task.UUID, 8, "c", run.TaskSucceeded{})
		}, "task.succeeded comes after its end"},
		"a failure applied twice":     {func(s *story) { s.event(4).Meta.Trace, s.event(4).Body = "f", run.TaskRetrying{} }, "left 2 events"},
		"a stale report that counted": {func(s *story) { s.event(7).Meta.Trace = "late" }, "it was refused as STALE, and left task.succeeded"},
		"a token that is not the one that ended the task": {func(s *story) {
			s.history.tasks[s.task] = taskRow{run.Succeeded, firstToken}
		}, "and the row has 100"},
		"a report accepted under another's token": {func(s *story) { s.answers[3].Token = firstToken }, "it was accepted for token 100"},
		"two holders at once":                     {func(s *story) { s.event(3).Body = run.TaskFannedOut{} }, "comes while token 100 was held"},
		"a token that was given twice": {func(s *story) {
			s.event(6).Body = run.TaskClaimed{Attempt: 2, Token: firstToken}
		}, "attempt 2 with token 100 comes while token 100 was held"},
		"a gap in a stream":                   {func(s *story) { s.event(7).Version = 8 }, "has version 8, not 7"},
		"an answer that is not what happened": {func(s *story) { s.answers[3].State = run.Failed }, "the answer was FAILED"},
		"a cancel that came to nothing": {func(s *story) {
			s.answers = append(s.answers, entry{Kind: kindCancel, RunState: run.RunCancelling})
		}, "it was accepted (CANCELLING), and the run is SUCCEEDED"},
		"a row that contradicts its events": {func(s *story) { s.event(7).Body = run.TaskFailed{} }, "is SUCCEEDED in its row and FAILED in its events"},
		"a missing added task": {func(s *story) {
			s.event(4).Meta.Trace, s.event(4).Body = "fan", run.TaskFannedOut{}
			s.answers = append(s.answers, entry{Kind: kindReport, Trace: "fan", Action: actFanOut, Added: []id.Task{{}}})
		}, "the added task 00000000-0000-0000-0000-000000000000 does not exist"},
		"a task that never ended":       {func(s *story) { s.history.tasks[s.task] = taskRow{} }, "has not ended"},
		"a run without a trigger":       {func(s *story) { s.history.events[0].Meta.Trace = "" }, "it made 0 runs"},
		"a trigger refused for nothing": {func(s *story) { s.answers[0].Refused = string(fault.InvalidArgument) }, "it was refused as INVALID_ARGUMENT"},
		"a lost start": {func(s *story) {
			s.answers = append(s.answers, entry{Kind: kindReport, Trace: "s", Action: actStart, Task: s.task, Token: firstToken})
		}, "report start of  (s at 00:00:00.000): it left 0 events"},
		"a fan-out applied twice": {func(s *story) {
			s.add(s.task.UUID, 8, "fan", run.TaskFannedOut{})
			s.add(s.task.UUID, 9, "fan", run.TaskFannedOut{})
			s.answers = append(s.answers, entry{Kind: kindReport, Trace: "fan", Action: actFanOut, Refused: string(fault.Stale)})
		}, "it left 2 fan-outs"},
		"an error that no caller should see": {func(s *story) { s.answers[0].Broken = "nil map" }, "the engine broke: nil map"},
	} {
		t.Run("it finds "+claim, func(t *testing.T) {
			t.Parallel()
			s := newStory()
			c.spoil(s)
			wrong := auditRun(s.history, s.answers)
			require.NotEmpty(t, wrong)
			require.Contains(t, toText(wrong), c.found)
		})
	}

	t.Run("it finds a key with two runs", func(t *testing.T) {
		t.Parallel()
		one, two := id.Of[id.Run](uuid.New()), id.Of[id.Run](uuid.New())
		answers := []entry{{Kind: kindTrigger, Key: "k", Run: one}, {Kind: kindTrigger, Key: "k", Run: one}, {Kind: kindTrigger, Run: two}}
		require.Empty(t, auditKeys(answers))
		require.Len(t, auditKeys(append(answers, entry{Kind: kindTrigger, Key: "k", Run: two})), 1)
	})
}

func toText(lines []string) string {
	text, _ := json.Marshal(lines)
	return string(text)
}

func TestWindows(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	w := newWindows()
	w.begin("database", at(2))
	w.begin("database", at(3)) // it is open
	w.begin("servers", at(3))
	w.end("database", at(5))
	w.end("database", at(6)) // it is closed
	w.end("servers", at(7))
	w.begin("database", at(20))

	for name, c := range map[string]struct{ from, to, want int }{
		"before any":              {0, 2, 2},
		"inside one":              {3, 4, 0},
		"inside two":              {2, 7, 0},
		"into one":                {0, 4, 2},
		"out of one":              {6, 10, 3},
		"the longer side counts":  {1, 12, 5},
		"into one that is open":   {10, 30, 10},
		"a moment":                {8, 8, 0},
		"between all of them":     {8, 19, 11},
		"the second of two sides": {0, 10, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, time.Duration(c.want)*time.Second, w.outside(span{at(c.from), at(c.to)}))
		})
	}
	t.Run("a cause can be left aside", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 3*time.Second, w.outside(span{at(0), at(6)}, "database"))
		require.Equal(t, 3*time.Second, w.total("database"))
		require.Equal(t, 1, w.touching(span{at(4), at(30)}, "database"))
		require.Zero(t, w.touching(span{at(5), at(30)}, "database"))
	})
}

func TestSchedule(t *testing.T) {
	t.Parallel()

	t.Run("a seed gives the same faults, another one others", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, schedule(7, time.Hour), schedule(7, time.Hour))
		require.NotEqual(t, schedule(7, time.Hour), schedule(8, time.Hour))
	})

	t.Run("a longer schedule begins like the shorter", func(t *testing.T) {
		t.Parallel()
		short := schedule(7, time.Minute)
		require.Equal(t, short, schedule(7, time.Hour)[:len(short)])
	})

	t.Run("every kind of fault comes up", func(t *testing.T) {
		t.Parallel()
		kinds := map[faultKind]int{}
		for _, f := range schedule(7, time.Hour) {
			kinds[f.Kind]++
		}
		require.Len(t, kinds, 6)
	})
}

func TestLedger(t *testing.T) {
	t.Parallel()

	t.Run("an entry is read as it was written", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		l, err := ledger.Open(filepath.Join(dir, "s"+ledger.Suffix))
		require.NoError(t, err)
		want := entry{Kind: kindReport, Trace: "x", Task: id.Of[id.Task](uuid.New()), Token: 7, State: run.Succeeded}
		require.NoError(t, l.Write(want))
		got, err := readLedgers(dir)
		require.NoError(t, err)
		require.Equal(t, []entry{want}, got)
	})
}
