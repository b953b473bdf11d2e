package push_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/push"
)

func TestBreaker(t *testing.T) {
	t.Parallel()
	config := push.BreakerConfig{Failures: 3, CoolDown: time.Minute, MaxCoolDown: 4 * time.Minute, Probes: 1}

	call := func(t *testing.T, b *push.Breaker, worked bool, now time.Time) {
		t.Helper()
		c, passed := b.Begin(now)
		require.True(t, passed)
		b.End(c, worked, now)
	}

	t.Run("it opens after failures in a row, and a success between them resets the count", func(t *testing.T) {
		t.Parallel()
		b := push.NewBreaker(config)
		for _, worked := range []bool{false, false, true, false, false} {
			call(t, b, worked, start)
		}
		require.Equal(t, push.BreakerClosed, b.State(start))
		require.Equal(t, math.MaxInt, b.Room(start))
		call(t, b, false, start)
		require.Equal(t, push.BreakerOpen, b.State(start))
		require.Equal(t, start.Add(time.Minute), b.RetryAt(start))
		_, passed := b.Begin(start.Add(time.Minute - 1))
		require.False(t, passed)
	})

	open := func(t *testing.T) *push.Breaker {
		t.Helper()
		b := push.NewBreaker(config)
		for range 3 {
			call(t, b, false, start)
		}
		return b
	}

	t.Run("after the cool-down one call tries, and its success closes it", func(t *testing.T) {
		t.Parallel()
		b, now := open(t), start.Add(time.Minute)
		require.Equal(t, push.BreakerHalfOpen, b.State(now))
		require.Zero(t, b.RetryAt(now))
		probe, passed := b.Begin(now)
		require.True(t, passed)
		_, passed = b.Begin(now)
		require.False(t, passed)
		b.End(probe, true, now)
		require.Equal(t, push.BreakerClosed, b.State(now))
	})

	t.Run("a try that fails doubles the cool-down, up to its limit; closing resets it", func(t *testing.T) {
		t.Parallel()
		b, now := open(t), start
		for _, wait := range []time.Duration{1, 2, 4, 4} {
			require.Equal(t, now.Add(wait*time.Minute), b.RetryAt(now))
			now = now.Add(wait * time.Minute)
			call(t, b, false, now)
		}
		now = now.Add(4 * time.Minute)
		call(t, b, true, now)
		for range 3 {
			call(t, b, false, now)
		}
		require.Equal(t, now.Add(time.Minute), b.RetryAt(now))
	})

	t.Run("a try that was never made leaves room for another", func(t *testing.T) {
		t.Parallel()
		b, now := open(t), start.Add(time.Minute)
		probe, _ := b.Begin(now)
		b.Drop(probe)
		require.Equal(t, 1, b.Room(now))
	})

	t.Run("the late end of an earlier call changes nothing", func(t *testing.T) {
		t.Parallel()
		b := push.NewBreaker(config)
		late, _ := b.Begin(start)
		for range 3 {
			call(t, b, false, start)
		}
		b.End(late, true, start)
		require.Equal(t, push.BreakerOpen, b.State(start))
		b.Drop(late)
		require.Equal(t, 1, b.Room(start.Add(time.Minute)))
	})

	t.Run("it does what a list of events defines", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, breakerAgainstOracle)
	})
}

// oracle decides from the whole history each time.
type oracle struct {
	config push.BreakerConfig
	open   bool
	row    []bool // ends since the last change
	wait   time.Duration
	until  time.Time
}

func (o *oracle) end(worked bool, now time.Time) {
	o.row = append(o.row, worked)
	failing := 0
	for i := len(o.row) - 1; i >= 0 && !o.row[i]; i-- {
		failing++
	}
	good := len(o.row) - failing
	switch {
	case !o.open && failing >= o.config.Failures:
		o.open, o.row, o.until = true, nil, now.Add(o.wait)
	case o.open && failing > 0:
		o.wait = min(2*o.wait, o.config.MaxCoolDown)
		o.row, o.until = nil, now.Add(o.wait)
	case o.open && good >= o.config.Probes:
		o.open, o.row, o.wait = false, nil, o.config.CoolDown
	}
}

func breakerAgainstOracle(t *rapid.T) {
	config := push.BreakerConfig{
		Failures: rapid.IntRange(1, 4).Draw(t, "failures"), CoolDown: time.Second,
		MaxCoolDown: time.Duration(rapid.IntRange(1, 9).Draw(t, "max")) * time.Second, Probes: rapid.IntRange(1, 3).Draw(t, "probes"),
	}
	b := push.NewBreaker(config)
	o := &oracle{config: config, wait: config.CoolDown}
	now := start
	type flight struct {
		call   push.Call
		change int
	}
	var flying []flight
	changes, last := 0, push.BreakerClosed
	lastUntil := o.until
	seen := func() {
		if o.open != (last != push.BreakerClosed) || o.until != lastUntil {
			changes++
		}
		lastUntil = o.until
		last = push.BreakerClosed
		if o.open {
			last = push.BreakerOpen
		}
	}
	current := func() (n int) {
		for _, f := range flying {
			if f.change == changes {
				n++
			}
		}
		return n
	}
	t.Repeat(map[string]func(*rapid.T){
		"begin": func(t *rapid.T) {
			room := math.MaxInt
			if o.open {
				room = config.Probes - current() - len(o.row)
				if now.Before(o.until) {
					room = 0
				}
			}
			require.Equal(t, room, b.Room(now))
			call, passed := b.Begin(now)
			require.Equal(t, room > 0, passed)
			if passed {
				flying = append(flying, flight{call, changes})
			}
		},
		"end": func(t *rapid.T) {
			if len(flying) == 0 {
				t.Skip("nothing flies")
			}
			at := rapid.IntRange(0, len(flying)-1).Draw(t, "which")
			worked := rapid.Bool().Draw(t, "worked")
			f := flying[at]
			flying = append(flying[:at:at], flying[at+1:]...)
			b.End(f.call, worked, now)
			if f.change == changes {
				o.end(worked, now)
				seen()
			}
		},
		"drop": func(t *rapid.T) {
			if len(flying) == 0 {
				t.Skip("nothing flies")
			}
			b.Drop(flying[0].call)
			flying = flying[1:]
		},
		"wait": func(t *rapid.T) {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
		},
		"": func(t *rapid.T) {
			want := push.BreakerClosed
			if o.open {
				want = push.BreakerOpen
				if !now.Before(o.until) {
					want = push.BreakerHalfOpen
				}
			}
			require.Equal(t, want, b.State(now))
		},
	})
}

func TestBucket(t *testing.T) {
	t.Parallel()

	t.Run("no limit lets everything pass", func(t *testing.T) {
		t.Parallel()
		b := push.NewBucket(0, start)
		require.Equal(t, 1_000_000, b.Take(1_000_000, start))
		require.Zero(t, b.Wait(start))
	})

	t.Run("a slow one lets one pass, and returns when the next may", func(t *testing.T) {
		t.Parallel()
		b := push.NewBucket(0.5, start)
		require.Equal(t, 1, b.Take(5, start))
		require.Equal(t, 2*time.Second, b.Wait(start))
		require.Zero(t, b.Take(1, start.Add(1999*time.Millisecond)))
		require.Equal(t, 1, b.Take(1, start.Add(2*time.Second)))
	})

	t.Run("a new rate holds from now on", func(t *testing.T) {
		t.Parallel()
		b := push.NewBucket(100, start)
		b.SetRate(2, start)
		require.InDelta(t, 2, b.Rate(), 0)
		require.Equal(t, 2, b.Take(100, start))
	})

	t.Run("in no span does more pass than the rate and the size allow", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			rate := rapid.Float64Range(0.1, 50).Draw(t, "rate")
			b, now := push.NewBucket(rate, start), start
			type pass struct {
				at time.Time
				n  int
			}
			var passes []pass
			for range rapid.IntRange(1, 40).Draw(t, "steps") {
				now = now.Add(time.Duration(rapid.IntRange(-200, 2000).Draw(t, "ms")) * time.Millisecond)
				passes = append(passes, pass{now, b.Take(rapid.IntRange(0, 100).Draw(t, "n"), now)})
			}
			high := start // a clock that goes back gives nothing again
			for i := range passes {
				if passes[i].at.Before(high) {
					passes[i].at = high
				}
				high = passes[i].at
			}
			for i := range passes {
				total := 0
				for _, p := range passes[i:] {
					total += p.n
					require.LessOrEqual(t, float64(total), math.Max(1, rate)+p.at.Sub(passes[i].at).Seconds()*rate+1e-6)
				}
			}
		})
	})
}
