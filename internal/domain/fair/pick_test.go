package fair_test

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/fair"
)

// backlog is a share with n tasks of one cost.
func backlog(weight, cost float64, n int) fair.Share {
	costs := make([]float64, n)
	for i := range costs {
		costs[i] = cost
	}
	return fair.Share{Weight: weight, Room: n, Costs: costs}
}

func TestPick(t *testing.T) {
	t.Parallel()

	t.Run("a tenant that arrives is served next, whatever waits before it", func(t *testing.T) {
		t.Parallel()
		shares := []fair.Share{backlog(1, 1, 1000)}
		order, clock := fair.Pick(0, shares, 100)
		require.Len(t, order, 100)
		shares = []fair.Share{backlog(1, 1, 1000), backlog(1, 1, 1)}
		shares[0].EvenAt = clock + 1
		order, _ = fair.Pick(clock, shares, 10)
		require.Equal(t, 1, order[0])
	})

	t.Run("a tenant that arrives is served next even if another was charged far too much before", func(t *testing.T) {
		t.Parallel()
		noisy := []fair.Share{backlog(1, 1, 1000)}
		_, clock := fair.Pick(0, noisy, 200)
		noisy[0].EvenAt -= 200 * 0.9 // its tasks took a tenth of what was expected
		shares := []fair.Share{backlog(1, 0.1, 1000), backlog(1, 1, 1)}
		shares[0].EvenAt, shares[0].Waits = noisy[0].EvenAt, noisy[0].Waits
		order, _ := fair.Pick(clock, shares, 3)
		require.Contains(t, order[:2], 1)
		require.False(t, shares[1].Waits)
		require.True(t, shares[0].Waits)
		require.InDelta(t, -0.9, shares[1].Deficit(clock), 0.11, "and it owes its task beside the one that waits")
	})

	t.Run("a tenant that did not wait has no credit", func(t *testing.T) {
		t.Parallel()
		shares := []fair.Share{backlog(1, 1, 100), backlog(1, 1, 100)}
		shares[0].EvenAt, shares[0].Waits = 40, true
		shares[1].EvenAt = 20
		order, _ := fair.Pick(50, shares, 10)
		count := 0
		for _, i := range order {
			count += i
		}
		require.Equal(t, 5, count, "they take turns")
	})

	t.Run("equal tenants take turns, and weights set how often", func(t *testing.T) {
		t.Parallel()
		order, _ := fair.Pick(0, []fair.Share{backlog(1, 1, 100), backlog(2, 1, 100), backlog(4, 1, 100)}, 70)
		count := map[int]int{}
		for _, i := range order {
			count[i]++
		}
		require.InDelta(t, 10, count[0], 1)
		require.InDelta(t, 20, count[1], 1)
		require.InDelta(t, 40, count[2], 1)
	})

	t.Run("a debt that was made while no other waited is forgiven with time", func(t *testing.T) {
		t.Parallel()
		debtor := fair.Share{Weight: 2, EvenAt: 60}
		require.InDelta(t, -100, debtor.Deficit(10), 0)
		require.InDelta(t, -80, debtor.Deficit(20), 0)
		require.InDelta(t, 0, debtor.Deficit(1000), 0)
		require.InDelta(t, 0, fair.Share{Weight: 1, EvenAt: 5}.Deficit(11), 0, "credit is not kept without waiting")
		require.InDelta(t, 6, fair.Share{Weight: 1, EvenAt: 5, Waits: true}.Deficit(11), 0)
	})

	t.Run("a tenant that is alone takes all the room, however much it owes", func(t *testing.T) {
		t.Parallel()
		alone := backlog(1, 5, 50)
		alone.EvenAt = 1e6
		order, clock := fair.Pick(0, []fair.Share{alone}, 50)
		require.Len(t, order, 50)
		require.Greater(t, clock, 1e6-1)
	})
}

// drawnShare is any share at the clock 50.
func drawnShare(t *rapid.T) fair.Share {
	return fair.Share{
		Weight: rapid.Float64Range(0.1, 10).Draw(t, "weight"),
		EvenAt: rapid.OneOf(rapid.Just(50.0), rapid.Float64Range(-50, 150)).Draw(t, "even at"),
		Waits:  rapid.Bool().Draw(t, "waits"),
		More:   rapid.Bool().Draw(t, "more"),
		Room:   rapid.IntRange(0, 10).Draw(t, "room"),
		Costs:  rapid.SliceOfN(rapid.Float64Range(0, 60), 0, 10).Draw(t, "costs"),
	}
}

// TestPickProperties: any shares, any room.
func TestPickProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Custom(drawnShare), 0, 8).Draw(t, "shares")
		room := rapid.IntRange(0, 40).Draw(t, "room")
		before := slices.Clone(shares)
		order, now := fair.Pick(50, shares, room)
		if room == 0 {
			require.Equal(t, before, shares, "a round without room changes nothing")
			return
		}
		front := 50.0
		for _, s := range before {
			if s.Waits && min(len(s.Costs), s.Room) > 0 {
				front = min(front, s.EvenAt)
			}
		}

		taken, possible := make([]int, len(shares)), 0
		for _, i := range order {
			taken[i]++
		}
		for i, s := range shares {
			limit := min(len(s.Costs), s.Room)
			possible += limit
			require.LessOrEqual(t, taken[i], limit, "no quota is exceeded and no task taken twice")
			require.False(t, math.IsNaN(s.EvenAt) || math.IsInf(s.EvenAt, 0))
			charged := 0.0
			for _, c := range s.Costs[:taken[i]] {
				charged += max(fair.MinCost, c)
			}
			// Everything that is charged or given can be accounted for.
			if limit > 0 && taken[i] < limit {
				began := before[i].EvenAt
				if !before[i].Waits {
					began = fair.Join(began, front, 50)
				}
				require.InDelta(t, began+charged/s.Weight, s.EvenAt, 1e-6)
				require.True(t, s.Waits)
			}
		}
		for i, s := range shares {
			if limit := min(len(s.Costs), s.Room); taken[i] == limit {
				require.Equal(t, limit > 0 && s.More, s.Waits)
			}
		}
		require.Len(t, order, min(room, possible), "no room is left while a tenant could take it")
		require.GreaterOrEqual(t, now, 50.0, "the clock does not go back")
	})
}

// TestPickHead: a round that reads the first shares of the order decides as one that reads all
// of them: the same tasks, the same clock, and the same debts.
func TestPickHead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fair.Share {
			s := drawnShare(t)
			s.Waits, s.Room, s.Costs = true, max(1, s.Room), append(s.Costs, 1)
			copy(s.Tenant.UUID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "tenant"))
			return s
		}), 1, 30).Draw(t, "shares")
		slices.SortStableFunc(all, func(a, b fair.Share) int {
			return cmp.Or(cmp.Compare(a.EvenAt, b.EvenAt), bytes.Compare(a.Tenant.UUID[:], b.Tenant.UUID[:]))
		})
		room := rapid.IntRange(1, 20).Draw(t, "room")
		head := slices.Clone(all[:min(len(all), room+1)])
		whole, wholeClock := fair.Pick(50, all, room)
		order, clock := fair.Pick(50, head, room)
		require.Equal(t, whole, order)
		require.InDelta(t, wholeClock, clock, 0)
		require.Equal(t, all[:len(head)], head)
	})
}

// TestShares: tenants that always wait get worker-seconds by their weights, whatever their
// tasks take and whatever was expected of them.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 6).Draw(t, "tenants")
		weights, actual, expected := make([]float64, n), make([]float64, n), make([]float64, n)
		state := make([]fair.Share, n)
		for i := range n {
			weights[i] = rapid.Float64Range(0.5, 5).Draw(t, "weight")
			actual[i] = rapid.Float64Range(0.1, 5).Draw(t, "actual")
			expected[i] = rapid.Float64Range(0.1, 5).Draw(t, "expected")
			state[i].Weight = weights[i]
		}
		served, clock, total := make([]float64, n), 0.0, 0.0
		for range 400 {
			for i := range state {
				state[i].Room, state[i].More, state[i].Costs = 20, true, make([]float64, 20)
				for j := range state[i].Costs {
					state[i].Costs[j] = expected[i]
				}
			}
			var order []int
			order, clock = fair.Pick(clock, state, 20)
			for _, i := range order {
				state[i].EvenAt -= (max(fair.MinCost, expected[i]) - actual[i]) / weights[i] // settled
				served[i] += actual[i]
				total += actual[i]
			}
		}
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		for i := range n {
			require.InDelta(t, weights[i]/sum, served[i]/total, 0.05, "tenant %d of weights %v", i, weights)
		}
	})
}

func TestRank(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	require.Less(t, fair.Rank(10, noon), fair.Rank(5, noon), "urgent first")
	require.Less(t, fair.Rank(5, noon), fair.Rank(5, noon.Add(time.Second)), "then who waits longest")
	require.Less(t, fair.Rank(6, noon.Add(24*time.Hour)), fair.Rank(5, noon), "however long another waits")
	require.Equal(t, fair.Rank(10, noon), fair.Rank(11, noon))
	require.Equal(t, fair.Rank(0, noon), fair.Rank(-1, noon))
}

// TestOldestTurns: under any load of urgent tasks, a task is admitted with one of the next
// OldestEvery tasks of its tenant for each older one and itself.
func TestOldestTurns(t *testing.T) {
	t.Parallel()
	type task struct {
		number, priority int
		latest           int // the last turn in which it may be admitted
	}
	rapid.Check(t, func(t *rapid.T) {
		var ready []task // the oldest first
		turn, made := rapid.IntRange(0, 20).Draw(t, "admitted before"), 0
		add := func(priority int) {
			made++
			ready = append(ready, task{made, priority, turn + fair.OldestEvery*(len(ready)+1)})
		}
		for range rapid.IntRange(1, 5).Draw(t, "patient tasks") {
			add(1)
		}
		for range rapid.IntRange(1, 30).Draw(t, "rounds") {
			room := rapid.IntRange(1, 20).Draw(t, "room")
			for range room + rapid.IntRange(-2, 3).Draw(t, "more arrive than leave") {
				add(rapid.SampledFrom([]int{10, 10, 10, 5, 1}).Draw(t, "priority"))
			}
			ranked := slices.Clone(ready)
			slices.SortStableFunc(ranked, func(a, b task) int { return cmp.Compare(b.priority, a.priority) })
			// A round reads no more than it can take.
			ranked, oldest := ranked[:min(room, len(ranked))], ready[:min(fair.OldestTurns(int64(turn), room), len(ready))]
			order := fair.Turns(int64(turn), ranked, oldest, func(t task) int { return t.number }, room)
			require.Len(t, order, min(room, len(ready)), "no room is left while tasks are ready")
			for _, a := range order {
				turn++
				require.LessOrEqual(t, turn, a.latest, "task %d of priority %d", a.number, a.priority)
				before := len(ready)
				ready = slices.DeleteFunc(ready, func(r task) bool { return r.number == a.number })
				require.Len(t, ready, before-1, "each is admitted once")
			}
			for _, r := range ready {
				require.Less(t, turn, r.latest, "task %d of priority %d still waits", r.number, r.priority)
			}
		}
	})
}

func BenchmarkPick(b *testing.B) {
	shares := make([]fair.Share, 1000)
	for b.Loop() {
		for i := range shares {
			shares[i] = backlog(1, 1, 3)
		}
		fair.Pick(0, shares, 1000)
	}
}
