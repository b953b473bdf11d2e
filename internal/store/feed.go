package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/store/internal/db"
)

// noEvent is the time that FeedNext returns if there is no next event.
var noEvent = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// feed runs fn in a transaction with plans for the feed.
func (s *Store) feed(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return s.entered(pgx.TxOptions{AccessMode: pgx.ReadOnly}, (*db.Queries).EnterFeed)(ctx, fn)
}

// Feed reads the events of all tenants after a position, in the order of the feed. It stops before
// events that a running transaction may still precede, so that a reader that continues from the
// last event sees each event once. With origins, events of runs have their workspace and pipeline.
func (s *Store) Feed(ctx context.Context, after event.Position, most int, origins bool) (found []subscription.Recorded, err error) {
	err = s.feed(ctx, func(ctx context.Context, tx *Tx) error {
		epochs, err := tx.epochs(ctx)
		if err != nil {
			return err
		}
		after = epochs.Current(after)
		rows, err := tx.q.Feed(ctx, db.FeedParams{Tx: strconv.FormatInt(after.Tx, 10), Position: after.Position, Ordinal: after.Ordinal, Most: int32(most)}) //nolint:gosec // a page
		if err != nil {
			return err
		}
		found = column(rows, func(r db.FeedRow) subscription.Recorded {
			return subscription.Recorded{
				At: event.Position{Epoch: epochs.Of(r.Tx), Tx: r.Tx, Position: r.Position, Ordinal: r.Ordinal}, Tenant: id.Of[id.Tenant](r.TenantID), Run: id.Of[id.Run](r.RunID),
				Stream: r.Subject, Version: r.Version, Time: r.RecordedAt, Schema: r.Schema, Type: event.Type(r.Type), Actor: r.Actor, Trace: r.Trace, Data: r.Data,
			}
		})
		if origins {
			return tx.origins(ctx, found)
		}
		return nil
	})
	return found, err
}

// origins fills in the workspaces and pipelines of runs.
func (tx *Tx) origins(ctx context.Context, events []subscription.Recorded) error {
	var p db.RunOriginsParams
	seen := map[id.Run]bool{{}: true}
	for _, e := range events {
		if !seen[e.Run] {
			seen[e.Run] = true
			p.TenantIds, p.Ids = append(p.TenantIds, e.Tenant.UUID), append(p.Ids, e.Run.UUID)
		}
	}
	rows, err := tx.q.RunOrigins(ctx, p)
	if err != nil {
		return err
	}
	of := make(map[uuid.UUID]db.RunOriginsRow, len(rows))
	for _, r := range rows {
		of[r.ID] = r
	}
	for i, e := range events {
		events[i].Workspace, events[i].Pipeline = of[e.Run.UUID].Workspace, of[e.Run.UUID].Pipeline
	}
	return nil
}

func (tx *Tx) epochs(ctx context.Context) (event.Epochs, error) {
	return list(func(r db.FeedEpochsRow) event.Epoch {
		return event.Epoch{Number: r.Epoch, From: r.FromTx, Cluster: r.Cluster}
	})(tx.q.FeedEpochs(ctx))
}

// FeedLag returns the age of the next event after a position; zero if there is none.
func (s *Store) FeedLag(ctx context.Context, after event.Position) (lag time.Duration, err error) {
	err = s.feed(ctx, func(ctx context.Context, tx *Tx) error {
		lag, err = tx.feedLag(ctx, after)
		return err
	})
	return lag, err
}

func (tx *Tx) feedLag(ctx context.Context, after event.Position) (time.Duration, error) {
	next, err := tx.q.FeedNext(ctx, db.FeedNextParams{Tx: strconv.FormatInt(after.Tx, 10), Position: after.Position, Ordinal: after.Ordinal})
	if err != nil || next.Equal(noEvent) {
		return 0, err
	}
	now, err := tx.Clock(ctx)
	return max(0, now.Sub(next)), err
}

// FeedState is the state of the feed and its subscriptions.
type FeedState struct {
	// Age is the age of the oldest event that a running transaction holds back.
	Age time.Duration
	// Lag is the lag of the active subscription that is farthest behind.
	Lag time.Duration
	// Failing counts the active subscriptions whose receiver rejects events.
	Failing int
}

// FeedState reads the state of the feed.
func (s *Store) FeedState(ctx context.Context) (state FeedState, err error) {
	err = s.feed(ctx, func(ctx context.Context, tx *Tx) error {
		ends, err := tx.q.FeedEnds(ctx)
		if err != nil {
			return err
		}
		if state.Age, err = tx.feedLag(ctx, event.Position{Tx: ends.Settled}); err != nil {
			return err
		}
		failing, err := tx.q.FailingSubscriptions(ctx)
		if err != nil {
			return err
		}
		state.Failing = int(failing)
		last, err := tx.q.FarthestBehind(ctx)
		for _, s := range last {
			state.Lag, err = tx.feedLag(ctx, event.Position{Tx: s.AfterTx, Position: s.AfterPosition, Ordinal: s.AfterOrdinal})
		}
		return err
	})
	return state, err
}

// FeedPlace parses a position: now, beginning, or a position from an earlier answer.
func (tx *Tx) FeedPlace(ctx context.Context, field, text string) (event.Position, error) {
	epochs, err := tx.epochs(ctx)
	if err != nil {
		return event.Position{}, err
	}
	ends, err := tx.q.FeedEnds(ctx)
	if err != nil {
		return event.Position{}, err
	}
	switch text {
	case "", "now":
		return epochs.Current(event.Position{Epoch: epochs.Of(ends.Settled), Tx: ends.Settled}), nil
	case "beginning":
		return event.Position{Epoch: 1}, nil
	}
	p, err := event.ParsePosition(field, text)
	if err != nil {
		return p, err
	}
	if p = epochs.Current(p); p.Tx >= ends.Next {
		return p, fault.New(fault.InvalidArgument, fmt.Sprintf("%s is beyond the end of the feed", text), fault.Field(field),
			fault.Remedy("use now to begin with the next event"))
	}
	return p, nil
}

// CheckFeedEpoch begins a new epoch if the cluster or its timeline has changed, and returns the
// current epoch. Where the cluster's identity is not readable, only RaiseFeedEpoch begins one.
func (s *Store) CheckFeedEpoch(ctx context.Context) (epoch int32, err error) {
	var cluster string
	asked := s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		cluster, err = tx.q.FeedCluster(ctx)
		return err
	})
	if asked != nil {
		if ctx.Err() != nil {
			return 0, asked
		}
		cluster = "" // some providers do not let the role read it
	}
	return s.raiseEpoch(ctx, cluster, otherCluster(cluster))
}

// RaiseFeedEpoch begins a new epoch: the cluster was restored to an earlier state.
func (s *Store) RaiseFeedEpoch(ctx context.Context, reason string) (int32, error) {
	return s.raiseEpoch(ctx, "", func(event.Epoch) (string, bool) { return reason, true })
}

func (s *Store) raiseEpoch(ctx context.Context, cluster string, raise func(last event.Epoch) (reason string, yes bool)) (int32, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (int32, error) {
		return tx.raiseEpoch(ctx, cluster, raise)
	})
}

// raiseEpoch begins a new epoch if raise returns true, and raises the fencing tokens: transaction
// ids and tokens may be allocated a second time. It returns the current epoch.
func (tx *Tx) raiseEpoch(ctx context.Context, cluster string, raise func(last event.Epoch) (reason string, yes bool)) (int32, error) {
	if err := tx.q.LockFeedEpochs(ctx); err != nil {
		return 0, err
	}
	epochs, err := tx.epochs(ctx)
	if err != nil {
		return 0, err
	}
	last := epochs[len(epochs)-1]
	if cluster == "" {
		cluster = last.Cluster
	}
	reason, yes := raise(last)
	if !yes {
		if last.Cluster == cluster {
			return last.Number, nil
		}
		return last.Number, tx.q.NameFeedCluster(ctx, db.NameFeedClusterParams{Cluster: cluster, Epoch: last.Number})
	}
	if _, err := tx.q.RaiseFencingToken(ctx); err != nil {
		return 0, err
	}
	ends, err := tx.q.FeedEnds(ctx)
	if err != nil {
		return 0, err
	}
	return last.Number + 1, tx.q.RaiseFeedEpoch(ctx, db.RaiseFeedEpochParams{Epoch: last.Number + 1, FromTx: ends.Settled, Cluster: cluster, Reason: reason})
}

// EventTypes returns the types of all events, sorted.
func EventTypes() []string {
	var all []string
	for t := range Codec().Types() {
		all = append(all, string(t))
	}
	slices.Sort(all)
	return all
}
