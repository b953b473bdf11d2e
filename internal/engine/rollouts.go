package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/store"
)

// RolloutDuty is the name of the duty under which rollouts are judged.
const RolloutDuty = "rollouts"

const rollouts = "rollouts" // the actor of automatic decisions

// RollChannel requests a rollout.
type RollChannel struct {
	Channel string
	Release string // name or id
	Waves   []int32
	Soak    time.Duration
	First   string
	// AllowBroken skips the tenants whose configs would break, instead of a refusal.
	AllowBroken bool
	Meta        event.Meta
}

// Roll starts a rollout, unless configs of following tenants would break. A channel without a release or
// without followers changes at once.
func (e *Engine) Roll(ctx context.Context, r RollChannel) (store.ReleaseChannel, error) {
	if len(r.Waves) == 0 {
		r.Waves = release.DefaultWaves()
	}
	if r.Soak == 0 {
		r.Soak = release.DefaultSoak
	}
	roll := release.Roll{Rollout: uuid.New(), Waves: r.Waves, First: r.First, Soak: r.Soak}
	if err := roll.Validate(); err != nil {
		return store.ReleaseChannel{}, err
	}
	impact, err := e.CheckRelease(ctx, r.Release, r.Channel)
	if err != nil {
		return store.ReleaseChannel{}, err
	}
	if len(impact.Broken) > 0 && !r.AllowBroken {
		return store.ReleaseChannel{}, impact.refusal(r)
	}
	tenants, err := e.store.FollowingTenants(ctx, r.Channel)
	if err != nil {
		return store.ReleaseChannel{}, err
	}
	for tenant := range impact.tenants {
		roll.Skipped = append(roll.Skipped, tenant)
	}
	slices.SortFunc(roll.Skipped, func(a, b id.Tenant) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
	roll.Wave = firstWave(r.Channel, roll, tenants)
	return e.changeChannel(ctx, r.Channel, r.Meta, func(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, _ time.Time) ([]event.Body, error) {
		to, err := shareRelease(ctx, tx, r.Release)
		if err != nil {
			return nil, err
		}
		roll.To = to.ID
		body, err := c.Start(c.Name, roll)
		if err != nil {
			return nil, err
		}
		if c.Current == (id.Release{}) || len(tenants) == 0 {
			return []event.Body{body, release.RolloutCompleted{}}, nil
		}
		return []event.Body{body}, nil
	})
}

// firstWave is the first wave that has tenants: an empty one would have no runs to judge.
func firstWave(channel string, roll release.Roll, tenants []store.FollowingTenant) int {
	first := len(roll.Waves) - 1
	r := release.Rollout{Waves: roll.Waves, First: roll.First, Skipped: roll.Skipped}
	for _, t := range tenants {
		if wave := r.WaveOf(channel, t.ID, t.Labels); wave >= 0 {
			first = min(first, wave)
		}
	}
	return first
}

// ChangeRollout requests a command of a rollout.
type ChangeRollout struct {
	Channel string
	Reason  string
	Meta    event.Meta
}

// PauseRollout stops a rollout at its wave.
func (e *Engine) PauseRollout(ctx context.Context, r ChangeRollout) (store.ReleaseChannel, error) {
	return e.changeRollout(ctx, r, func(c store.ReleaseChannel, seen release.Evidence) (event.Body, error) {
		return c.Pause(c.Name, seen, r.Reason, false)
	})
}

// ResumeRollout continues a paused rollout; the soak of its wave begins again.
func (e *Engine) ResumeRollout(ctx context.Context, r ChangeRollout) (store.ReleaseChannel, error) {
	return e.changeRollout(ctx, r, func(c store.ReleaseChannel, seen release.Evidence) (event.Body, error) {
		return c.Resume(c.Name, seen, r.Reason)
	})
}

// AdvanceRollout starts the next wave now, or completes the last one.
func (e *Engine) AdvanceRollout(ctx context.Context, r ChangeRollout) (store.ReleaseChannel, error) {
	return e.changeRollout(ctx, r, func(c store.ReleaseChannel, seen release.Evidence) (event.Body, error) {
		return c.Next(c.Name, seen, r.Reason)
	})
}

// RollBack returns all tenants of a channel to the release before its last rollout. Runs in flight keep
// theirs.
func (e *Engine) RollBack(ctx context.Context, r ChangeRollout) (store.ReleaseChannel, error) {
	return e.changeRollout(ctx, r, func(c store.ReleaseChannel, seen release.Evidence) (event.Body, error) {
		if c.Rollout != nil && c.Rollout.From == (id.Release{}) {
			return nil, fault.New(fault.Conflict, "channel "+c.Name+" had no release before", fault.Field("channel"), fault.Remedy("roll another release"))
		}
		return c.Rollback(c.Name, seen, r.Reason, false)
	})
}

func (e *Engine) changeRollout(ctx context.Context, r ChangeRollout, decide func(c store.ReleaseChannel, seen release.Evidence) (event.Body, error)) (store.ReleaseChannel, error) {
	if err := config.ValidateNote("reason", r.Reason); err != nil {
		return store.ReleaseChannel{}, err
	}
	return e.changeChannel(ctx, r.Channel, r.Meta, func(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, _ time.Time) ([]event.Body, error) {
		seen, err := tx.RolloutEvidence(ctx, c.Rollout)
		if err != nil {
			return nil, err
		}
		body, err := decide(c, seen)
		if err != nil {
			return nil, err
		}
		if c.Rollout.State.Active() { // the release that it returns to, or continues with, may be deleted meanwhile
			if _, err := tx.ShareRelease(ctx, c.Rollout.To); err != nil {
				return nil, err
			}
		} else if _, err := tx.ShareRelease(ctx, c.Rollout.From); err != nil {
			return nil, err
		}
		return []event.Body{body}, nil
	})
}

// JudgeRollouts applies the rule to every rollout that is rolling, under the duty.
func (e *Engine) JudgeRollouts(ctx context.Context, duty store.Duty) error {
	channels, err := e.store.ReleaseChannels(ctx)
	if err != nil {
		return err
	}
	var failed error
	for _, c := range channels {
		if c.State() != release.Rolling {
			continue
		}
		err := e.judge(ctx, duty, c.Name)
		if errors.Is(err, store.ErrDutyLost) {
			return err
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

func (e *Engine) judge(ctx context.Context, duty store.Duty, channel string) error {
	var (
		decided event.Body
		changed store.ReleaseChannel
	)
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		var err error
		changed, err = changeChannelIn(ctx, tx, channel, event.Meta{Actor: rollouts}, func(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, now time.Time) ([]event.Body, error) {
			if decided, err = verdictOn(ctx, tx, c, now); err != nil || decided == nil {
				return nil, err
			}
			return []event.Body{decided}, nil
		})
		return err
	})
	if err == nil && decided != nil {
		e.log.Info("rollout decided", "channel", channel, "event", decided.EventType(), "state", changed.State(), "wave", changed.Rollout.Wave+1, "reason", changed.Rollout.Reason)
	}
	return err
}

// verdictOn applies the rule to the rollout of a locked channel; nil changes nothing.
func verdictOn(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, now time.Time) (event.Body, error) {
	if c.State() != release.Rolling {
		return nil, nil
	}
	seen, err := tx.RolloutEvidence(ctx, c.Rollout)
	if err != nil {
		return nil, err
	}
	switch c.Rollout.Judge(seen, now) {
	case release.Advance:
		return c.Next(c.Name, seen, "")
	case release.Stop:
		failures, err := tx.RolloutFailures(ctx, c.Rollout, maxFailuresNamed)
		if err != nil {
			return nil, err
		}
		return c.Rollback(c.Name, seen, stopReason(seen, failures), true)
	case release.Ask:
		return c.Pause(c.Name, seen, fmt.Sprintf("only %d runs ended on the new release in this wave, %d are needed; advance, resume or roll back",
			seen.New.Ended-c.Rollout.Base, release.MinRuns), true)
	case release.Wait:
	}
	return nil, nil
}

// maxFailuresNamed bounds the pairs of tenant and error that a reason is made from.
const maxFailuresNamed = 200

// stopReason states the evidence, and which tenants and errors it is made of.
func stopReason(seen release.Evidence, failures []store.RolloutFailure) string {
	byTenant, byError := map[string]int64{}, map[string]int64{}
	for _, f := range failures {
		byTenant[f.Tenant] += f.Runs
		byError[f.Error] += f.Runs
	}
	return clipped(fmt.Sprintf("%s; tenants: %s; errors: %s", seen.Describe(), most(byTenant), most(byError)), config.MaxNote)
}

// most names the entries with the highest counts.
func most(counts map[string]int64) string {
	const named = 5
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(a, b)
	})
	text := make([]string, 0, named+1)
	for _, name := range names[:min(len(names), named)] {
		text = append(text, fmt.Sprintf("%s (%d)", name, counts[name]))
	}
	if len(names) > named {
		text = append(text, fmt.Sprintf("and %d more", len(names)-named))
	}
	return strings.Join(text, ", ")
}
