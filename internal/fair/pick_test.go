package fair_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/fair"
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
		shares[0].Deficit, shares[0].Clock = -1, clock
		order, _ = fair.Pick(clock, shares, 10)
		require.Equal(t, 1, order[0])
	})

	t.Run("a tenant that arrives is served next even if another was charged far too much before", func(t *testing.T) {
		t.Parallel()
		noisy := []fair.Share{backlog(1, 1, 1000)}
		_, clock := fair.Pick(0, noisy, 200)
		noisy[0].Deficit += 200 * 0.9 // its tasks took a tenth of what was expected
		shares := []fair.Share{backlog(1, 0.1, 1000), backlog(1, 1, 1)}
		shares[0].Deficit, shares[0].Clock, shares[0].Waits = noisy[0].Deficit, noisy[0].Clock, noisy[0].Waits
		order, _ := fair.Pick(clock, shares, 3)
		require.Contains(t, order[:2], 1)
		require.False(t, shares[1].Waits)
		require.True(t, shares[0].Waits)
		require.InDelta(t, -0.9, shares[1].Deficit, 0.11, "and it owes its task beside the one that waits")
	})

	t.Run("who did not wait has nothing to its credit, though the clock stood still", func(t *testing.T) {
		t.Parallel()
		shares := []fair.Share{backlog(1, 1, 100), backlog(1, 1, 100)}
		shares[0].Deficit, shares[0].Clock, shares[0].Waits = 10, 50, true
		shares[1].Deficit, shares[1].Clock = 30, 50
		order, _ := fair.Pick(50, shares, 10)
		count := 0
		for _, i := range order {
			count += i
		}
		require.Equal(t, 5, count, "they take turns")
	})

	t.Run("equal tenants take turns, and weights say how often", func(t *testing.T) {
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

	t.Run("a debt that was made while nobody waited is forgiven with time", func(t *testing.T) {
		t.Parallel()
		debtor := fair.Share{Weight: 2, Deficit: -100, Clock: 10}
		require.InDelta(t, -100, debtor.Now(10), 0)
		require.InDelta(t, -80, debtor.Now(20), 0)
		require.InDelta(t, 0, debtor.Now(1000), 0)
		require.InDelta(t, 0, fair.Share{Weight: 1, Deficit: 5, Clock: 10}.Now(11), 0, "credit is not kept by who does not wait")
	})

	t.Run("whoever is alone takes all the room, however much it owes", func(t *testing.T) {
		t.Parallel()
		alone := backlog(1, 5, 50)
		alone.Deficit = -1e6
		order, clock := fair.Pick(0, []fair.Share{alone}, 50)
		require.Len(t, order, 50)
		require.Greater(t, clock, 1e6-1)
	})
}

// TestPickProperties: any shares, any room.
func TestPickProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shares := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fair.Share {
			return fair.Share{
				Weight:  rapid.Float64Range(0.1, 10).Draw(t, "weight"),
				Deficit: rapid.Float64Range(-100, 100).Draw(t, "deficit"),
				Clock:   rapid.OneOf(rapid.Just(50.0), rapid.Float64Range(0, 50)).Draw(t, "clock"),
				Waits:   rapid.Bool().Draw(t, "waits"),
				More:    rapid.Bool().Draw(t, "more"),
				Room:    rapid.IntRange(0, 10).Draw(t, "room"),
				Costs:   rapid.SliceOfN(rapid.Float64Range(0, 60), 0, 10).Draw(t, "costs"),
			}
		}), 0, 8).Draw(t, "shares")
		room := rapid.IntRange(0, 40).Draw(t, "room")
		before := slices.Clone(shares)
		order, now := fair.Pick(50, shares, room)
		if room == 0 {
			require.Equal(t, before, shares, "a round without room changes nothing")
			return
		}
		stays := func(s fair.Share) bool { return s.Waits && s.Clock == 50 }
		front := 50.0
		for _, s := range before {
			if stays(s) && min(len(s.Costs), s.Room) > 0 {
				front = min(front, 50-s.Deficit/s.Weight)
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
			require.False(t, math.IsNaN(s.Deficit) || math.IsInf(s.Deficit, 0))
			charged := 0.0
			for _, c := range s.Costs[:taken[i]] {
				charged += max(fair.MinCost, c)
			}
			// Everything that is charged or given can be accounted for.
			if limit > 0 && taken[i] < limit {
				began := before[i].Deficit
				if !stays(before[i]) {
					began = (50-front)*s.Weight + min(0, before[i].Now(50))
				}
				require.InDelta(t, began+(now-50)*s.Weight-charged, s.Deficit, 1e-6)
				require.True(t, s.Waits)
			}
		}
		for i, s := range shares {
			if limit := min(len(s.Costs), s.Room); taken[i] == limit {
				require.Equal(t, limit > 0 && s.More, s.Waits)
			}
		}
		require.Len(t, order, min(room, possible), "no room is left while somebody could take it")
		require.GreaterOrEqual(t, now, 50.0, "the clock does not go back")
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
				state[i].Deficit += max(fair.MinCost, expected[i]) - actual[i] // settled
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
	require.Less(t, fair.Rank(5, noon), fair.Rank(6, noon.Add(11*time.Minute)), "and waiting makes up for priority")
	require.Less(t, fair.Rank(6, noon.Add(9*time.Minute)), fair.Rank(5, noon))
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
