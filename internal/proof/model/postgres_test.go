package model

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests hold the model against what PostgreSQL documents for READ COMMITTED.

func TestRowLockConflicts(t *testing.T) {
	t.Parallel()

	conflicts := map[Mode][]Mode{
		Unlocked:    {},
		KeyShare:    {Update},
		Share:       {NoKeyUpdate, Update},
		NoKeyUpdate: {Share, NoKeyUpdate, Update},
		Update:      {KeyShare, Share, NoKeyUpdate, Update},
	}
	for a, with := range conflicts {
		for b := range conflicts {
			require.Equal(t, contains(with, b), a.conflicts(b), "%q against %q", a, b)
		}
	}
}

func contains(modes []Mode, m Mode) bool {
	for _, other := range modes {
		if other == m {
			return true
		}
	}
	return false
}

func TestStatements(t *testing.T) {
	t.Parallel()

	// A cancel that has locked its run and begun to sweep ready_q, where three tasks are;
	// an admission that has locked the first of them.
	setup := func(t *testing.T) (*World, *State) {
		t.Helper()
		w := &World{
			Rules: AllRules(),
			Tasks: []Task{{In: Ready}, {In: Ready}, {In: Pool}},
			Actors: []Actor{
				{Name: "admission", Role: Admission},
				{Name: "canceller", Role: Canceller},
			},
		}
		s := w.start()
		w.open(&s, 0, Admit)
		w.open(&s, 1, Cancel)
		for range 2 { // ready_q, task 0
			_, waits := w.advance(&s, 0)
			require.Zero(t, waits)
		}
		for range 4 { // run, its row, waiting, ready_q
			_, waits := w.advance(&s, 1)
			require.Zero(t, waits)
		}
		return w, &s
	}

	t.Run("a locking select waits for the row's holder", func(t *testing.T) {
		t.Parallel()
		w, s := setup(t)
		_, waits := w.advance(s, 1)
		require.Equal(t, set(0), waits)
	})

	t.Run("it steps over a row that was deleted while it waited, and takes the next", func(t *testing.T) {
		t.Parallel()
		w, s := setup(t)
		tx := s.Tx[0]
		w.commit(s, &tx)
		w.close(s, 0)
		_, waits := w.advance(s, 1)
		require.Zero(t, waits)
		require.Equal(t, set(1), s.Tx[1].Got[Ready])
		require.Equal(t, set(1), s.Tx[1].Locks.Rows[Ready])
	})

	t.Run("it does not see a row that came after its snapshot, even one of a key that it had", func(t *testing.T) {
		t.Parallel()
		w, s := setup(t)
		s.remove(Ready, 0)
		s.insert(Ready, 0, Row{})
		s.insert(Ready, 2, Row{})
		w.close(s, 0)
		_, waits := w.advance(s, 1)
		require.Zero(t, waits)
		require.Equal(t, set(1), s.Tx[1].Got[Ready])
		require.False(t, s.Tx[1].Begun, "the statement is done")
	})

	t.Run("the next statement has a snapshot of its own", func(t *testing.T) {
		t.Parallel()
		w, s := setup(t)
		tx := s.Tx[0]
		w.commit(s, &tx)
		w.close(s, 0)
		for range 4 { // task 1 of ready_q; pool_q, tasks 0 and 2
			_, waits := w.advance(s, 1)
			require.Zero(t, waits)
		}
		require.Equal(t, set(0, 2), s.Tx[1].Got[Pool])
	})

	t.Run("SKIP LOCKED steps over a locked row", func(t *testing.T) {
		t.Parallel()
		w, s := setup(t)
		w.close(s, 0)
		w.advance(s, 1) // the cancel locks task 0
		w.open(s, 0, Admit)
		for range 3 {
			_, waits := w.advance(s, 0)
			require.Zero(t, waits)
		}
		require.Equal(t, set(1), s.Tx[0].Got[Ready])
	})

	t.Run("a transaction that ends without commit leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		w, s := setup(t)
		before := s.DB
		w.close(s, 0)
		w.close(s, 1)
		require.Equal(t, before, s.DB)
		require.Equal(t, [maxTx]Tx{}, s.Tx)
	})
}

func TestCircle(t *testing.T) {
	t.Parallel()

	require.False(t, circle(&[maxTx]Set{set(1), set(2), 0}))
	require.True(t, circle(&[maxTx]Set{set(1), set(2), set(0)}))
	require.True(t, circle(&[maxTx]Set{0, set(3), 0, set(1)}))
}

func TestInvariantsDetectViolations(t *testing.T) {
	t.Parallel()

	w := World{Rules: AllRules(), Quota: 1, Tasks: []Task{{In: Leases}, {In: Waiting, Ups: set(0)}}, Actors: []Actor{
		{Name: "worker", Role: Worker, Holds: set(0)},
		{Name: "admission", Role: Admission},
	}}
	good := w.start()
	other := good
	other.DB.Epoch++ // so that something has changed
	require.Equal(t, Holds, w.check(&good, &other))

	cases := []struct {
		want   Invariant
		damage func(before, after *State)
	}{
		{OneQueue, func(_, s *State) { s.remove(Waiting, 1) }},
		{OneQueue, func(_, s *State) { s.insert(Retry, 0, Row{}) }},
		{OneQueue, func(_, s *State) { s.insert(Leases, 0, Row{}) }},
		{EndsOnce, func(before, s *State) {
			before.DB.Tasks[0].Outcome, s.DB.Tasks[0].Outcome = Failed, Succeeded
		}},
		{EndsOnce, func(_, s *State) {
			s.DB.Tasks[0].Outcome = Failed
			w.end(s, &Tx{}, 0, Failed)
		}},
		{TokenOnce, func(_, s *State) {
			s.DB.Tasks[0].Accepted = set(1)
			w.accept(s, &Tx{Token: [maxTasks]int8{1}}, 0)
		}},
		{HolderOnly, func(_, s *State) { w.accept(s, &Tx{Token: [maxTasks]int8{2}}, 0) }},
		{Stranded, func(_, s *State) {
			s.DB.Rows[Leases][0].Claim, s.Client[0].Turn, s.Client[0].Held[0] = claimIDs(0), 1, 0
		}},
		{Counters, func(_, s *State) { s.DB.Runs[0].Remaining-- }},
		{Counters, func(_, s *State) { s.DB.Runs[0].Count[Skipped]++ }},
		{RunEnds, func(_, s *State) { s.DB.Runs[0].Ended = Failed }},
		{CancelSweeps, func(_, s *State) {
			s.DB.Runs[0].Mark, s.DB.Rows[Leases][0].Flag = true, true
		}},
		{CancelFlags, func(_, s *State) { s.DB.Runs[0].Mark = true }},
		{UnmetCounts, func(_, s *State) { s.DB.Rows[Waiting][1].Unmet++ }},
		{QuotaHolds, func(_, s *State) {
			s.remove(Waiting, 1)
			s.insert(Pool, 1, Row{})
		}},
	}
	for _, c := range cases {
		before, after := good, other
		c.damage(&before, &after)
		require.Equal(t, c.want, w.check(&before, &after), "%s", c.want)
	}

	rest := map[Invariant]func(*State){
		WayOn: func(*State) {},
		NoLostWakeUp: func(s *State) {
			s.insert(Ready, 1, Row{})
			s.Client[1].Asleep = true
		},
		CancelEnds: func(s *State) {
			s.DB.Runs[0].Mark = true
			s.remove(Leases, 0)
		},
		Holds: func(s *State) { s.DB.Runs[0].Ended = Succeeded },
	}
	for want, change := range rest {
		s := good
		change(&s)
		require.Equal(t, want, w.checkRest(&s), "%s", want)
	}
}
