package rollouts

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/admission"
	"go.arco.dev/servo/internal/loops/reaper"
	"go.arco.dev/servo/internal/loops/rollouts"
	"go.arco.dev/servo/internal/store"
)

// serverConfig is the configuration of a server process.
type serverConfig struct {
	Database string
	Target   step // that its operator works towards; 0 ends what is rolling
}

// holder is the name of every server: it takes the duties of the one before it at once.
const holder = "server"

// serve is the life of a server: the engine with its loops, a worker, a caller and an operator.
func serve(ctx context.Context, config serverConfig, ready func()) error {
	db, err := store.Open(ctx, store.Options{URL: config.Database, MaxConns: 8})
	if err != nil {
		return err
	}
	defer db.Close()
	e := engine.New(db, engine.Config{Server: holder, Lease: 2 * time.Second, PollEvery: 100 * time.Millisecond}, nil)
	defer e.Stop()
	admit := admission.Start(db, e, admission.Config{Holder: holder})
	reap := reaper.Start(db, e, reaper.Config{})
	judge := rollouts.Start(db, e, rollouts.Config{Holder: holder, Every: 50 * time.Millisecond})
	ready()
	var busy sync.WaitGroup
	busy.Go(func() { work(ctx, e) })
	if config.Target != 0 {
		busy.Go(func() { call(ctx, db, e) })
	}
	busy.Go(func() { operate(ctx, db, e, config.Target) })
	busy.Wait()
	judge.Stop()
	reap.Stop()
	return admit.Stop(context.WithoutCancel(ctx))
}

// call triggers runs of all tenants, while not too many are open.
func call(ctx context.Context, db *store.Store, e *engine.Engine) {
	owners, err := db.FollowingTenants(ctx, channel)
	for err == nil && pause(ctx, 100*time.Millisecond) == nil {
		triggers := make([]engine.Trigger, len(owners))
		for i, owner := range owners {
			triggers[i] = engine.Trigger{Tenant: owner.ID, Pipeline: "pair", WaitForQuota: true}
		}
		_, _ = e.TriggerRuns(ctx, triggers)
	}
}

// work executes tasks. A result names the release whose code was executed; the release "bad" fails half of the
// time.
func work(ctx context.Context, e *engine.Engine) {
	for ctx.Err() == nil {
		leases, err := e.Claim(ctx, engine.ClaimRequest{
			Worker: holder, Claim: id.Of[id.Claim](uuid.New()), Pools: []string{asset.DefaultPool}, Max: 50, Slots: 100, Wait: time.Second, Start: true,
		})
		if err != nil || len(leases) == 0 {
			continue
		}
		reports := make([]engine.Report, len(leases))
		for i, l := range leases {
			code := l.Code.Exec.Command[0]
			reports[i] = engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Complete{Result: json.RawMessage(`"` + code + `"`)}}
			if code == "bad" && rand.IntN(2) == 0 {
				reports[i].Action = engine.Fail{Failure: run.Failure{Code: "BROKEN_CODE"}}
			}
		}
		_, _ = e.Report(ctx, reports) // a task whose report was lost is leased again
	}
}

// operate gives the commands that lead to the target, and leaves the rest to the rule.
func operate(ctx context.Context, db *store.Store, e *engine.Engine, target step) {
	for pause(ctx, 50*time.Millisecond) == nil {
		channels, err := db.ReleaseChannels(ctx)
		if err != nil {
			continue
		}
		for _, c := range channels {
			if c.Name != channel {
				continue
			}
			if err := command(ctx, db, e, c, target); err != nil && !fault.Is(err, fault.Conflict) && !errors.Is(err, context.Canceled) {
				panic(err)
			}
		}
	}
}

func command(ctx context.Context, db *store.Store, e *engine.Engine, c store.ReleaseChannel, target step) error {
	change := engine.ChangeRollout{Channel: channel, Meta: event.Meta{Actor: "operator"}}
	bad, err := db.ReleaseNamed(ctx, "bad")
	if err != nil {
		return err
	}
	switch {
	case !c.State().Active():
		if target == 0 {
			return nil
		}
		return roll(ctx, db, e, c, target == rollsBack)
	case c.State() == release.Paused:
		_, err = e.ResumeRollout(ctx, change)
	case target == pauses || target == resumes:
		_, err = e.PauseRollout(ctx, change)
	case target == 0 || target == starts, target == rollsBack && c.Rollout.To != bad.ID:
		_, err = e.AdvanceRollout(ctx, change)
	case (target == advances || target == completes) && c.Rollout.To == bad.ID:
		_, err = e.RollBack(ctx, change)
	}
	return err
}

// roll rolls to the bad release, or to a good one that the channel does not use.
func roll(ctx context.Context, db *store.Store, e *engine.Engine, c store.ReleaseChannel, bad bool) error {
	names := []string{"good-1", "good-2"}
	if bad {
		names = append([]string{"bad"}, names...)
	}
	for _, name := range names {
		to, err := db.ReleaseNamed(ctx, name)
		if err != nil {
			return err
		}
		if to.ID != c.Current {
			_, err = e.Roll(ctx, engine.RollChannel{Channel: channel, Release: name, Waves: []int32{4000, 10_000}, Soak: time.Second, Meta: event.Meta{Actor: "operator"}})
			return err
		}
	}
	return nil
}
