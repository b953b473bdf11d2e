package model

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryInterleavingKeepsThePromises(t *testing.T) {
	t.Parallel()

	// A world that shrinks below this has lost something that used to happen in it.
	atLeast := map[string]int{
		"one task": 150_000, "withdrawn from a pool": 1_000, "chain": 60_000, "fan-in": 150_000, "fan-out": 50_000, "diamond": 30_000,
		"claims whose answer is lost": 150_000, "reports whose answer is lost": 100_000,
		"wake-up without polling": 40_000, "wake-up with polling": 20_000, "parked claims": 40_000,
		"stopped worker": 70_000, "batches over two runs": 10_000, "mixed batches": 90, "admission duty and quota": 5_000,
		"handoff and cancel": 50_000, "handoff and quota": 70_000, "handoff and claims": 1_500,
		"handoff and wake-up": 40_000, "handoff and the start of a run": 300,
		"cursor": 1_000, "claims that admit and quota": 20_000, "claims that admit and cancel": 10_000, "claims that admit and wake-up": 2_000, "claims that admit and handoff": 4_000,
	}
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			r := Explore(w, AllRules())
			require.Equal(t, Holds, r.Broken, "%s", r)
			require.False(t, r.Truncated, "%s", r)
			require.Contains(t, atLeast, w.Name)
			require.Greater(t, r.States, atLeast[w.Name])
			t.Log(r)
		})
	}
}

// mutation is a rule that is switched off, and the world in which that shows.
type mutation struct {
	rule  string
	world string
	want  Invariant
	tweak func(*World)
}

func (m mutation) explore() Result {
	w := Named(m.world)
	if m.tweak != nil {
		m.tweak(&w)
	}
	return Explore(w, Without(m.rule))
}

// behindDeadlocks looks for what else goes wrong where the first thing is a deadlock.
func behindDeadlocks(w *World) { w.ForgiveDeadlock = true }

// anyAnswerIsLost lets commits of the loops go unanswered as well.
func anyAnswerIsLost(w *World) { w.LoseReportsOnly = false }

func mutations() []mutation {
	return []mutation{
		{rule: "ReportsLockRun", world: "fan-in", want: NoDeadlock},
		{rule: "ReportsLockRun", world: "diamond", want: Counters, tweak: behindDeadlocks},
		{rule: "RunLockExcludes", world: "diamond", want: Counters},
		{rule: "CancelLocksUpdate", world: "one task", want: CancelSweeps},
		{rule: "RetryDueLocksRun", world: "one task", want: CancelSweeps},
		{rule: "WithdrawLocksRun", world: "withdrawn from a pool", want: CancelSweeps},
		{rule: "FanOutLocksRun", world: "fan-out", want: NoDeadlock},
		{rule: "FanOutLocksRun", world: "fan-out", want: Counters, tweak: behindDeadlocks},
		{rule: "CountDownUnderLock", world: "diamond", want: UnmetCounts},
		{rule: "HonourMark", world: "one task", want: CancelSweeps},
		{rule: "FanOutHonoursMark", world: "fan-out", want: CancelSweeps},
		{rule: "FailureSkipsTheCone", world: "diamond", want: WayOn},
		{rule: "SweepForward", world: "one task", want: CancelSweeps},
		{rule: "SweepForward", world: "batches over two runs", want: CancelFlags},
		{rule: "SweepSnapshots", world: "one task", want: CancelSweeps},
		{rule: "SweepWaits", world: "one task", want: CancelSweeps},
		{rule: "MoverLocksRow", world: "one task", want: CancelSweeps},
		{rule: "MoverLocksRow", world: "claims whose answer is lost", want: OneQueue},
		{rule: "RetryLocksRow", world: "stopped worker", want: OneQueue},
		{rule: "TablesInOrder", world: "one task", want: NoDeadlock},
		{rule: "RowsInOrder", world: "batches over two runs", want: NoDeadlock},
		{rule: "RunsAtOnce", world: "mixed batches", want: NoDeadlock},
		{rule: "TokenMatches", world: "stopped worker", want: HolderOnly},
		{rule: "ExpiryRechecked", world: "stopped worker", want: LiveLease},
		{rule: "ClaimIDLocked", world: "claims whose answer is lost", want: Stranded},
		{rule: "ClaimIDLookedUp", world: "claims whose answer is lost", want: Stranded},
		{rule: "ReportRemembered", world: "reports whose answer is lost", want: FirstAnswer},
		{rule: "FanOutOrdinal", world: "fan-out", want: FansOnce},
		{rule: "AdvanceLocksLease", world: "cursor", want: CursorKept},
		{rule: "CursorRecorded", world: "cursor", want: CursorKept},
		{rule: "SignalAfterCommit", world: "wake-up without polling", want: NoLostWakeUp},
		{rule: "SignalLatched", world: "wake-up without polling", want: NoLostWakeUp},
		{rule: "RepeatSignals", world: "wake-up without polling", want: NoLostWakeUp},
		{rule: "LoopPolls", world: "wake-up with polling", want: NoLostWakeUp},
		{rule: "DutyLocked", world: "admission duty and quota", want: DutyHolder},
		{rule: "DutyEpoch", world: "admission duty and quota", want: DutyHolder},
		{rule: "DutyExclusive", world: "admission duty and quota", want: QuotaHolds},
		{rule: "DutyExclusive", world: "wake-up without polling", want: NoLostWakeUp, tweak: anyAnswerIsLost},
		{rule: "QuotaAtOnce", world: "admission duty and quota", want: QuotaHolds},
		{rule: "HandoffSkips", world: "handoff and the start of a run", want: NoDeadlock},
		{rule: "HandoffHoldsDuty", world: "handoff and quota", want: QuotaHolds},
		{rule: "HandoffReadsAfter", world: "handoff and quota", want: QuotaHolds},
		{rule: "HandoffLocksClaim", world: "handoff and claims", want: Stranded},
		{rule: "HandoffLooksUpClaim", world: "handoff and claims", want: Stranded},
		{rule: "LooksBeforeNothing", world: "handoff and claims", want: Stranded},
		{rule: "LooksAfterUnknown", world: "handoff and claims", want: Stranded},
		{rule: "RetryDueLocksRun", world: "handoff and cancel", want: CancelFlags},
		{rule: "CancelLocksUpdate", world: "handoff and cancel", want: CancelFlags},
		{rule: "DutyLocked", world: "handoff and quota", want: QuotaHolds},
		{rule: "ClaimHoldsDuty", world: "claims that admit and quota", want: QuotaHolds},
		{rule: "ClaimReadsAfter", world: "claims that admit and quota", want: QuotaHolds},
		{rule: "MoverLocksRow", world: "claims that admit and cancel", want: CancelSweeps},
		{rule: "SweepForward", world: "claims that admit and cancel", want: CancelSweeps},
	}
}

// spare are rules that the others make superfluous.
func spare() []string {
	return []string{"ReportLocksWaiting", "CancelLocksWaiting", "CancelLocksRetry"}
}

func TestEveryRuleIsNeeded(t *testing.T) {
	t.Parallel()

	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	tried := map[string]bool{}
	for _, rule := range spare() {
		tried[rule] = true
	}
	for _, m := range mutations() {
		tried[m.rule] = true
		t.Run(fmt.Sprintf("without %s in %s: %s", m.rule, m.world, m.want), func(t *testing.T) {
			t.Parallel()
			r := m.explore()
			require.Equal(t, m.want, r.Broken, "%s", r)
			require.NotEmpty(t, r.Trace)
			require.Contains(t, string(doc), fmt.Sprintf("%s: %s, %d steps: %s\n", m.rule, m.world, len(r.Trace), r.Broken),
				"the package documentation lists how the mutation is caught")
			t.Log(r)
		})
	}
	rules := reflect.TypeFor[Rules]()
	for i := range rules.NumField() {
		require.True(t, tried[rules.Field(i).Name], "no test breaks the rule %s", rules.Field(i).Name)
	}
}

func TestSpareLocks(t *testing.T) {
	t.Parallel()

	rules := AllRules()
	for _, rule := range spare() {
		reflect.ValueOf(&rules).Elem().FieldByName(rule).SetBool(false)
	}
	for _, name := range []string{"reports whose answer is lost", "diamond", "fan-out"} {
		t.Run("the run's lock already guards waiting and retry_q: "+name, func(t *testing.T) {
			t.Parallel()
			r := Explore(Named(name), rules)
			require.Equal(t, Holds, r.Broken, "%s", r)
			t.Log(r)
		})
	}
}

// What the rules do not promise, as a record.
func TestLimits(t *testing.T) {
	t.Parallel()

	t.Run("without polling a retry that is due is forgotten when its commit goes unanswered", func(t *testing.T) {
		t.Parallel()
		w := Named("wake-up without polling")
		w.LoseReportsOnly = false
		r := Explore(w, AllRules())
		require.Equal(t, NoLostWakeUp, r.Broken, "%s", r)
		t.Log(r)
	})

	t.Run("without polling a parked claim sleeps on when a server dies between its commit and its signal", func(t *testing.T) {
		t.Parallel()
		w := Named("parked claims")
		w.Crashes = 1
		r := Explore(w, AllRules())
		require.Equal(t, NoLostWakeUp, r.Broken, "%s", r)
		t.Log(r)
	})

	t.Run("a claim that arrives after its own repeat was served takes a task without a worker", func(t *testing.T) {
		t.Parallel()
		r := Explore(World{
			Name:     "slow first claim",
			Tasks:    []Task{{In: Pool}, {In: Pool}},
			Attempts: 1,
			Actors: []Actor{
				{Name: "first", Role: Echo},
				{Name: "worker A", Role: Worker, Max: 1, Verdicts: []Kind{Complete}},
			},
		}, AllRules())
		require.Equal(t, Stranded, r.Broken, "%s", r)
		t.Log(r)
	})

	t.Run("a report is refused once the reaper has taken the lease, even without another claim", func(t *testing.T) {
		t.Parallel()
		w := Named("stopped worker")
		w.StrictFence = true
		r := Explore(w, AllRules())
		require.Equal(t, TokenFences, r.Broken, "%s", r)
		t.Log(r)
	})

	late := func(mode Mode) Result {
		w := Named("stopped worker")
		w.StrictFence, w.LateReports, w.RetryDueMode = true, true, mode
		return Explore(w, AllRules())
	}

	t.Run("looking for the task in every queue is not enough: retry due moves it behind the report's back", func(t *testing.T) {
		t.Parallel()
		r := late(KeyShare)
		require.Equal(t, TokenFences, r.Broken, "%s", r)
		t.Log(r)
	})

	t.Run("it is enough if retry due also takes the run FOR SHARE", func(t *testing.T) {
		t.Parallel()
		r := late(Share)
		require.Equal(t, Holds, r.Broken, "%s", r)
		t.Log(r)
	})
}
