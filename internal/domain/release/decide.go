package release

import (
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Counts are ended runs. Cancelled runs do not count.
type Counts struct {
	Ended  int64 `json:"ended"`
	Failed int64 `json:"failed"`
}

// Rate is the share of failed runs; 0 without runs.
func (c Counts) Rate() float64 {
	if c.Ended == 0 {
		return 0
	}
	return float64(c.Failed) / float64(c.Ended)
}

// Evidence are the runs by which a rollout is judged: on the new release since the rollout started, and
// of the same configs on the old release.
type Evidence struct {
	New Counts `json:"new"`
	Old Counts `json:"old"`
}

// The rule of a rollout.
const (
	MinRuns      = 30   // ended runs on the new release before a wave advances
	significance = 0.01 // of the one-sided Fisher exact test
	margin       = 0.01 // by which the new failure rate must exceed the old one
	maxRate      = 0.05 // of failures, when the old release has too few runs to compare with
	patience     = 4    // soaks without enough runs, until the rollout asks
)

// Worse reports whether the new release fails significantly more often than the old one. It holds at any
// count. If the old release has so few runs that no result could be significant, the failure rate has a
// fixed bound instead.
func (e Evidence) Worse() bool {
	if e.New.Failed == 0 || e.New.Rate() <= e.Old.Rate()+margin {
		return false
	}
	everyFails := Evidence{New: Counts{e.New.Ended, e.New.Ended}, Old: e.Old}
	if e.Old.Ended == 0 || everyFails.chance() >= significance {
		return e.New.Ended >= MinRuns && e.New.Rate() > maxRate
	}
	return e.chance() < significance
}

// chance is the p-value of Fisher's exact test, one-sided: the probability of at least as many failures
// among the new runs if both releases failed equally often.
func (e Evidence) chance() float64 {
	n, failed := e.New.Ended, e.New.Failed+e.Old.Failed
	total := n + e.Old.Ended
	all := logChoose(total, n)
	p := 0.0
	for k := e.New.Failed; k <= min(n, failed); k++ {
		if n-k > total-failed { // more successes than there are
			continue
		}
		term := math.Exp(logChoose(failed, k) + logChoose(total-failed, n-k) - all)
		p += term
		if term < p*1e-12 { // the terms only shrink from here
			break
		}
	}
	return min(p, 1)
}

func logChoose(n, k int64) float64 {
	gamma := func(x int64) float64 {
		v, _ := math.Lgamma(float64(x) + 1)
		return v
	}
	return gamma(n) - gamma(k) - gamma(n-k)
}

// Verdict is the result of the rule for a rollout.
type Verdict string

// The verdicts.
const (
	Wait    Verdict = "WAIT"
	Advance Verdict = "ADVANCE"
	Stop    Verdict = "STOP"
	Ask     Verdict = "ASK"
)

// Judge applies the rule to a rollout that is rolling.
func (r Rollout) Judge(e Evidence, now time.Time) Verdict {
	enough := e.New.Ended-r.Base >= MinRuns
	switch {
	case e.Worse():
		return Stop
	case enough && !now.Before(r.WaveAt.Add(r.Soak)):
		return Advance
	case !enough && !now.Before(r.WaveAt.Add(patience*r.Soak)):
		return Ask
	}
	return Wait
}

// Describe states the evidence in words.
func (e Evidence) Describe() string {
	text := fmt.Sprintf("%d of %d runs failed on the new release (%.1f %%)", e.New.Failed, e.New.Ended, 100*e.New.Rate())
	if e.Old.Ended == 0 {
		return text + "; the same configs have no runs on the old one"
	}
	return text + fmt.Sprintf(", %d of %d of the same configs on the old one (%.1f %%)", e.Old.Failed, e.Old.Ended, 100*e.Old.Rate())
}

// Roll requests a rollout.
type Roll struct {
	Rollout uuid.UUID
	To      id.Release
	Waves   []int32
	Wave    int // the first wave that has tenants
	First   string
	Soak    time.Duration
	Skipped []id.Tenant
}

// The limits of a rollout.
const (
	MaxWaves   = 20
	MaxSkipped = 1000
	MinSoak    = time.Second
	MaxSoak    = 7 * 24 * time.Hour
	whole      = 10_000 // all tenants, in hundredths of a percent
)

// DefaultWaves and DefaultSoak are used by a roll that sets none.
func DefaultWaves() []int32 { return []int32{100, 1000, 5000, whole} }

// DefaultSoak is how long a wave lasts at least.
const DefaultSoak = 15 * time.Minute

// Validate checks waves, soak and label.
func (r Roll) Validate() error {
	if len(r.Waves) == 0 || len(r.Waves) > MaxWaves {
		return fault.Invalid("waves", fmt.Sprintf("has %d waves", len(r.Waves)), fmt.Sprintf("send 1 to %d percentages, such as 1, 10, 50, 100", MaxWaves))
	}
	for i, w := range r.Waves {
		if w < 1 || w > whole || i > 0 && w <= r.Waves[i-1] {
			return fault.Invalid(fmt.Sprintf("waves[%d]", i), fmt.Sprintf("is %g %%", float64(w)/100), "send ascending percentages from 0.01 to 100")
		}
	}
	if last := r.Waves[len(r.Waves)-1]; last != whole {
		return fault.Invalid("waves", fmt.Sprintf("ends at %g %%", float64(last)/100), "end with 100")
	}
	if r.Soak < MinSoak || r.Soak > MaxSoak {
		return fault.Invalid("soak", fmt.Sprintf("is %s, must be %s to %s", r.Soak, MinSoak, MaxSoak), "use a duration such as 15m")
	}
	if r.First != "" {
		if _, _, err := ParseLabel("first", r.First); err != nil {
			return err
		}
	}
	if len(r.Skipped) > MaxSkipped {
		return fault.New(fault.LimitExceeded, fmt.Sprintf("%d tenants have configs that would break, the limit is %d", len(r.Skipped), MaxSkipped),
			fault.Field("allow_broken"), fault.Remedy("fix their configs, or roll another release"), fault.Value("limit", MaxSkipped))
	}
	return nil
}

// Start decides a roll of a channel with the name.
func (c Channel) Start(name string, r Roll) (event.Body, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if c.State().Active() {
		return nil, fault.New(fault.Conflict, fmt.Sprintf("channel %s is being rolled to release %s, at wave %d of %d", name, c.Rollout.To, c.Rollout.Wave+1, len(c.Rollout.Waves)),
			fault.Field("channel"), fault.Remedy("wait for its end, or end it: servo channels rollback "+name))
	}
	if r.To == c.Current {
		return nil, fault.New(fault.Conflict, fmt.Sprintf("channel %s uses release %s", name, r.To), fault.Field("release"), fault.Remedy("roll another release"))
	}
	return RolloutStarted{Rollout: r.Rollout, From: c.Current, To: r.To, Waves: r.Waves, Wave: r.Wave, First: r.First, Soak: r.Soak, Skipped: r.Skipped}, nil
}

// Next decides an advance: the next wave, or the end of the rollout.
func (c Channel) Next(name string, e Evidence, reason string) (event.Body, error) {
	if err := c.allow(name, WaveAdvanced{}); err != nil {
		return nil, err
	}
	if c.Rollout.Wave+1 >= len(c.Rollout.Waves) {
		return RolloutCompleted{Evidence: e, Reason: reason}, nil
	}
	return WaveAdvanced{Wave: c.Rollout.Wave + 1, Evidence: e, Reason: reason}, nil
}

// Pause, Resume and Rollback decide the commands of people and of the rule.
func (c Channel) Pause(name string, e Evidence, reason string, automatic bool) (event.Body, error) {
	body := RolloutPaused{Reason: reason, Automatic: automatic, Evidence: e}
	return body, c.allow(name, body)
}

// Resume continues a paused rollout.
func (c Channel) Resume(name string, e Evidence, reason string) (event.Body, error) {
	body := RolloutResumed{Reason: reason, Evidence: e}
	return body, c.allow(name, body)
}

// Rollback returns to the old release, also after the end of the rollout.
func (c Channel) Rollback(name string, e Evidence, reason string, automatic bool) (event.Body, error) {
	body := RolloutRolledBack{Reason: reason, Automatic: automatic, Evidence: e}
	return body, c.allow(name, body)
}

// allow refuses a command that the state of the rollout does not permit.
func (c Channel) allow(name string, body event.Body) error {
	if _, known := stateAfter(c.State(), body); known {
		return nil
	}
	state := "was never rolled"
	if c.Rollout != nil {
		state = "has a rollout that is " + string(c.Rollout.State)
	}
	verb := map[event.Type]string{
		WaveAdvanced{}.EventType(): "advance", RolloutPaused{}.EventType(): "pause", RolloutResumed{}.EventType(): "resume", RolloutRolledBack{}.EventType(): "roll back",
	}[body.EventType()]
	return fault.New(fault.Conflict, fmt.Sprintf("channel %s %s; there is nothing to %s", name, state, verb), fault.Field("channel"),
		fault.Remedy("show it with: servo channels status "+name), fault.Value("state", string(c.State())))
}
