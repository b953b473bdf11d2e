package ratelimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/ratelimit"
)

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// shared is what the servers share: the row of a rate.
type shared struct {
	most   int
	window time.Time
	leased int
}

func (s *shared) lease(now time.Time, want, debt int) ratelimit.Lease {
	if window := now.Truncate(ratelimit.Window); window != s.window {
		s.window, s.leased = window, 0
	}
	granted := max(0, min(want, s.most-s.leased-debt))
	s.leased += debt + granted
	return ratelimit.Lease{Granted: granted, Leased: s.leased, Window: s.window, Now: now}
}

// server is one that has a clock of its own, and a lease that may be on its way.
type server struct {
	ratelimit.Meter
	ahead time.Duration
	sent  time.Time
	asked [2]int
	lease *ratelimit.Lease // given, and not there yet
	flies bool
}

func (s *server) clock(now time.Time) time.Time { return now.Add(s.ahead) }

func TestServersTogether(t *testing.T) {
	t.Parallel()

	t.Run("however leases travel, a window sees no more than the limit and a chunk for each server", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			limit := rapid.IntRange(1, 60).Draw(rt, "limit")
			row := &shared{most: limit}
			servers := make([]*server, rapid.IntRange(1, 4).Draw(rt, "servers"))
			for i := range servers {
				servers[i] = &server{Meter: ratelimit.NewMeter(limit), ahead: time.Duration(rapid.IntRange(-300, 300).Draw(rt, "ahead")) * time.Second}
			}
			now, passed := noon, map[time.Time]int{}
			for range rapid.IntRange(1, 600).Draw(rt, "steps") {
				s := servers[rapid.IntRange(0, len(servers)-1).Draw(rt, "server")]
				switch rapid.IntRange(0, 5).Draw(rt, "step") {
				case 0:
					now = now.Add(time.Duration(rapid.SampledFrom([]int{1, 5, 50, 5_000, 20_000}).Draw(rt, "pause")) * time.Millisecond)
				case 1: // a call under way continues
					if s.flies && s.lease == nil {
						given := row.lease(now, s.asked[0], s.asked[1])
						s.lease = &given
					} else if s.flies {
						s.Granted(*s.lease, s.sent, s.clock(now))
						s.flies, s.lease = false, nil
					}
				default:
					if s.Take(s.clock(now)) == ratelimit.Pass {
						passed[now.Truncate(ratelimit.Window)]++
					}
					if s.Needs(s.clock(now)) {
						s.asked[0], s.asked[1] = s.Ask()
						s.sent, s.flies = s.clock(now), true
					}
				}
				standing := s.Status(s.clock(now))
				require.GreaterOrEqual(rt, standing.Remaining, 0)
				require.LessOrEqual(rt, standing.Remaining, limit)
			}
			for _, n := range passed {
				require.LessOrEqual(rt, n, limit+len(servers)*ratelimit.Chunk(limit))
			}
		})
	})

	t.Run("a caller below the limit is never refused, and one server grants all of it", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			limit := rapid.IntRange(1, 500).Draw(rt, "limit")
			row := &shared{most: limit}
			m := ratelimit.NewMeter(limit)
			now, passed := noon.Add(time.Duration(rapid.IntRange(0, 30).Draw(rt, "second"))*time.Second), 0
			for calls := 0; calls < 2*limit+2; calls++ {
				verdict := m.Take(now)
				for ; verdict == ratelimit.Wait; verdict = m.Take(now) {
					require.True(rt, m.Needs(now), "what is waited for must be asked for")
					want, debt := m.Ask()
					m.Granted(row.lease(now, want, debt), now, now)
				}
				if verdict == ratelimit.Pass {
					passed++
				} else {
					require.GreaterOrEqual(rt, passed, limit)
					require.Zero(rt, m.Status(now).Remaining)
					require.Equal(rt, ratelimit.Window-now.Sub(now.Truncate(ratelimit.Window)), m.Status(now).Reset)
				}
				if m.Needs(now) && rapid.Bool().Draw(rt, "at once") {
					want, debt := m.Ask()
					m.Granted(row.lease(now, want, debt), now, now)
				}
			}
			require.LessOrEqual(rt, passed, limit+ratelimit.Chunk(limit))
			next := now.Truncate(ratelimit.Window).Add(ratelimit.Window)
			require.Equal(rt, ratelimit.Pass, m.Take(next), "the next window is another")
		})
	})
}

func TestMeter(t *testing.T) {
	t.Parallel()

	t.Run("the next lease is asked for when half of the chunk is spent, and only once", func(t *testing.T) {
		t.Parallel()
		row := &shared{most: 100}
		m := ratelimit.NewMeter(100)
		require.Equal(t, ratelimit.Pass, m.Take(noon), "the first call does not wait")
		want, debt := m.Ask()
		require.Equal(t, [2]int{10, 1}, [2]int{want, debt})
		require.False(t, m.Needs(noon))
		m.Granted(row.lease(noon, want, debt), noon, noon)
		require.Equal(t, ratelimit.Status{Limit: 100, Remaining: 99, Reset: ratelimit.Window}, m.Status(noon))
		for range 4 {
			require.Equal(t, ratelimit.Pass, m.Take(noon))
			require.False(t, m.Needs(noon))
		}
		require.Equal(t, ratelimit.Pass, m.Take(noon))
		require.True(t, m.Needs(noon))
	})

	t.Run("credit is a chunk, then a call waits", func(t *testing.T) {
		t.Parallel()
		m := ratelimit.NewMeter(100)
		for range ratelimit.Chunk(100) {
			require.Equal(t, ratelimit.Pass, m.Take(noon))
		}
		require.Equal(t, ratelimit.Wait, m.Take(noon))
		m.Ask()
		require.Equal(t, ratelimit.Wait, m.Take(noon))
		m.Granted(ratelimit.Lease{Granted: 0, Leased: 100, Window: noon, Now: noon}, noon, noon)
		require.Equal(t, ratelimit.Refuse, m.Take(noon))
	})

	t.Run("an unreachable database leaves the whole limit to each server", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			limit := rapid.IntRange(1, 50).Draw(rt, "limit")
			m := ratelimit.NewMeter(limit)
			now := noon
			for window := range 3 {
				passed := 0
				for calls := range limit + 20 {
					if m.Needs(now) {
						m.Ask()
						m.Failed(now)
					}
					switch m.Take(now) {
					case ratelimit.Pass:
						passed++
					case ratelimit.Refuse:
						require.Equal(rt, limit, passed)
					case ratelimit.Wait:
						require.Failf(rt, "no call waits for a database that does not answer", "window %d, call %d", window, calls)
					}
				}
				require.Equal(rt, limit, passed)
				now = now.Add(ratelimit.Window)
			}
			require.Equal(rt, ratelimit.Pass, m.Take(now))
			require.True(rt, m.Needs(now), "it is asked again")
			want, debt := m.Ask()
			require.Equal(rt, 1, debt, "what has passed meanwhile counts")
			m.Granted((&shared{most: limit}).lease(now, want, debt), now, now)
			require.Equal(rt, limit-1, m.Status(now).Remaining)
		})
	})

	t.Run("a meter that nothing has passed in this window can be forgotten", func(t *testing.T) {
		t.Parallel()
		m := ratelimit.NewMeter(10)
		require.True(t, m.Idle(noon))
		m.Take(noon)
		want, debt := m.Ask()
		require.False(t, m.Idle(noon))
		m.Granted((&shared{most: 10}).lease(noon, want, debt), noon, noon)
		require.False(t, m.Idle(noon.Add(ratelimit.Window-1)))
		require.True(t, m.Idle(noon.Add(ratelimit.Window)))
	})
}

func TestSeats(t *testing.T) {
	t.Parallel()

	t.Run("however servers learn of each other, there are no more calls than the limit and a chunk for each", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			limit := rapid.IntRange(1, 20).Draw(rt, "limit")
			n := rapid.IntRange(1, 4).Draw(rt, "servers")
			servers, reported := make([]ratelimit.Streams, n), make([]int, n)
			others, flies := make([]int, n), make([]int, n) // 1: asked, 2: answered
			sent := make([]int, n)
			for i := range servers {
				servers[i] = ratelimit.NewStreams(limit)
			}
			now, open := noon, make([]int, n)
			for range rapid.IntRange(1, 300).Draw(rt, "steps") {
				i := rapid.IntRange(0, n-1).Draw(rt, "server")
				s := &servers[i]
				switch rapid.IntRange(0, 5).Draw(rt, "step") {
				case 0:
					now = now.Add(time.Duration(rapid.SampledFrom([]int{1, 500, 11_000}).Draw(rt, "pause")) * time.Millisecond)
				case 1:
					if open[i] > 0 {
						s.Leave()
						open[i]--
					}
				case 2:
					switch flies[i] {
					case 1:
						reported[i], others[i], flies[i] = sent[i], 0, 2
						for j := range reported {
							if j != i {
								others[i] += reported[j]
							}
						}
					case 2:
						s.Reported(others[i], now)
						flies[i] = 0
					}
				default:
					if s.Take(now) == ratelimit.Pass {
						open[i]++
					}
				}
				if flies[i] == 0 && s.Needs(now) {
					sent[i], flies[i] = s.Report(), 1
				}
				total := 0
				for _, o := range open {
					total += o
				}
				require.LessOrEqual(rt, total, limit+n*ratelimit.StreamChunk(limit))
			}
		})
	})

	t.Run("one server opens all, refuses one more, and has room when one leaves", func(t *testing.T) {
		t.Parallel()
		s := ratelimit.NewStreams(10)
		report := func() {
			require.True(t, s.Needs(noon))
			s.Report()
			s.Reported(0, noon)
		}
		for range 10 {
			if s.Take(noon) == ratelimit.Wait {
				report()
				require.Equal(t, ratelimit.Pass, s.Take(noon))
			}
		}
		report()
		require.Equal(t, ratelimit.Refuse, s.Take(noon))
		require.Zero(t, s.Status().Remaining)
		s.Leave()
		require.Equal(t, ratelimit.Pass, s.Take(noon))
	})

	t.Run("a full limit by the counts of others is checked again after a second", func(t *testing.T) {
		t.Parallel()
		s := ratelimit.NewStreams(2)
		s.Report()
		s.Reported(2, noon)
		require.Equal(t, ratelimit.Refuse, s.Take(noon))
		require.False(t, s.Needs(noon))
		require.Equal(t, ratelimit.Wait, s.Take(noon.Add(time.Second)))
		require.True(t, s.Needs(noon.Add(time.Second)))
		s.Report()
		s.Reported(1, noon.Add(time.Second))
		require.Equal(t, ratelimit.Pass, s.Take(noon.Add(time.Second)))
	})

	t.Run("an unreachable database leaves the whole limit to each server, for streams too", func(t *testing.T) {
		t.Parallel()
		s := ratelimit.NewStreams(3)
		s.Report()
		s.Failed(noon)
		for range 3 {
			require.Equal(t, ratelimit.Pass, s.Take(noon))
		}
		require.Equal(t, ratelimit.Refuse, s.Take(noon))
		require.False(t, s.Needs(noon))
		require.True(t, s.Needs(noon.Add(time.Second)))
		require.False(t, s.Idle())
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	require.NoError(t, ratelimit.Limits{}.Check())
	require.NoError(t, ratelimit.Defaults().Check())
	for _, c := range []ratelimit.Class{ratelimit.Trigger, ratelimit.List, ratelimit.Deploy, ratelimit.Stream} {
		require.Zero(t, ratelimit.Limits{}.Of(c), "the zero value has no limits")
		require.Positive(t, ratelimit.Defaults().Of(c))
		require.NotEmpty(t, c.String())
	}
	require.Zero(t, ratelimit.Defaults().Of(ratelimit.Unlimited))
	err := ratelimit.Limits{Deploy: -1}.Check()
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "--rate-deploy", f.Violation.Field)
	require.Error(t, ratelimit.Limits{Streams: 1 << 30}.Check())
}
