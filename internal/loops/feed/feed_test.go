package feed_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/feed"
	"go.arco.dev/servo/internal/store"
)

// receivedEvent is an event that a receiver got.
type receivedEvent struct {
	ID, Type, Tenant, Stream, Run string
	Version                       int
	Time                          time.Time
	Data                          json.RawMessage
}

// receiver is the endpoint of a webhook.
type receiver struct {
	*httptest.Server

	mu       sync.Mutex
	secret   []byte
	calls    int
	received []receivedEvent
	answer   int // the status; 0 is 200
}

func listen(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		seconds, _ := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64)
		var events []receivedEvent
		err := json.Unmarshal(body, &events)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls++
		signed := req.Header.Get("Webhook-Signature") == webhook.Sign(r.secret, req.Header.Get("Webhook-Id"), time.Unix(seconds, 0), body)
		switch {
		case err != nil || !signed || len(events) == 0:
			w.WriteHeader(http.StatusBadRequest)
		case r.answer != 0:
			w.WriteHeader(r.answer)
		default:
			r.received = append(r.received, events...)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
}

func (r *receiver) all() []receivedEvent {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.received)
}

func (r *receiver) ids() (ids []string) {
	for _, e := range r.all() {
		ids = append(ids, e.ID)
	}
	return ids
}

func (r *receiver) types() (types []string) {
	for _, e := range r.all() {
		types = append(types, e.Type)
	}
	return types
}

// world is an engine with two tenants.
type world struct {
	*engine.Engine

	db           *servotest.Database
	acme, globex id.Tenant
	now          time.Time
}

var meta = event.Meta{Actor: "test"}

// here lets the feed call receivers on this machine.
var here = netguard.NewGuard(netguard.Policy{Local: true})

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{db: servotest.DB(t), now: time.Now().UTC().Truncate(time.Second)}
	w.db.SetClock(t, w.now)
	w.Engine = engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
	t.Cleanup(w.Stop)
	for name, to := range map[string]*id.Tenant{"acme": &w.acme, "globex": &w.globex} {
		made, err := w.CreateTenant(t.Context(), name, meta)
		require.NoError(t, err)
		*to = made
		parsed, err := asset.Parse([]byte(`{version: 1, assets: [{key: s/one, go: {}}], pipelines: [{name: single, overlap: allow}, {name: other, overlap: allow}]}`), "servo.yaml")
		require.NoError(t, err)
		_, err = w.Deploy(t.Context(), made, "default", parsed, meta)
		require.NoError(t, err)
	}
	return w
}

func (w *world) subscribe(t *testing.T, owner id.Tenant, r *receiver, s subscription.Settings) store.Follower {
	t.Helper()
	s.URL = r.URL
	if s.Name == "" {
		s.Name = "hook"
	}
	made, err := w.CreateSubscription(t.Context(), owner, s, "beginning", meta)
	require.NoError(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = made.Secret
	return made
}

func (w *world) feed(t *testing.T) *feed.Feed {
	t.Helper()
	f := feed.New(w.db.Store, w.Engine, feed.Config{Version: "test", Guard: here})
	t.Cleanup(f.Stop)
	return f
}

// run triggers a run of a pipeline.
func (w *world) run(t *testing.T, owner id.Tenant, pipeline string) {
	t.Helper()
	_, err := w.TriggerRun(t.Context(), engine.Trigger{Tenant: owner, Workspace: "default", Pipeline: pipeline, Meta: meta})
	require.NoError(t, err)
}

func (w *world) forward(t *testing.T, d time.Duration) {
	t.Helper()
	w.now = w.now.Add(d)
	w.db.SetClock(t, w.now)
}

func (w *world) at(t *testing.T, owner id.Tenant) store.FollowerView {
	t.Helper()
	found, err := w.db.Subscriptions(t.Context(), owner, "hook")
	require.NoError(t, err)
	require.Len(t, found, 1)
	return found[0]
}

// logged are the ids of all events of a tenant, in the order of the feed; of all tenants for the
// zero one.
func (w *world) logged(t *testing.T, owner id.Tenant) []string {
	t.Helper()
	const of = ` WHERE tenant_id = $1 OR $2`
	return w.db.Texts(t, `SELECT '1.' || txid || '.' || position || '.' || ordinal FROM (SELECT txid, position, ordinal, tenant_id FROM servo.run_events
		UNION ALL SELECT txid, position, 1, tenant_id FROM servo.entity_events
		UNION ALL SELECT txid, position, 1, '00000000-0000-0000-0000-000000000000' FROM servo.platform_events) AS e`+of+` ORDER BY txid, position, ordinal`, owner.UUID, owner == id.Tenant{})
}

// until looks until a receiver has a number of events. Transactions of other tests in the same cluster
// hold events back for as long as they run.
func until(t *testing.T, f *feed.Feed, r *receiver, n int) {
	t.Helper()
	for len(r.all()) < n {
		require.NoError(t, t.Context().Err())
		_, err := f.Once(t.Context())
		require.NoError(t, err)
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()

	t.Run("a receiver gets all events of its tenant, in order, once, and no others", func(t *testing.T) {
		t.Parallel()
		w, mine, all := setup(t), listen(t), listen(t)
		w.subscribe(t, w.acme, mine, subscription.Settings{})
		w.subscribe(t, id.Tenant{}, all, subscription.Settings{})
		for range 60 {
			w.run(t, w.acme, "single")
			w.run(t, w.globex, "single")
		}
		f := w.feed(t)
		until(t, f, mine, len(w.logged(t, w.acme)))
		until(t, f, all, len(w.logged(t, id.Tenant{})))
		require.Equal(t, w.logged(t, w.acme), mine.ids())
		require.Equal(t, w.logged(t, id.Tenant{}), all.ids())
		for _, e := range mine.all() {
			require.Equal(t, w.acme.String(), e.Tenant)
			require.NotEmpty(t, e.Stream)
			require.Positive(t, e.Version)
			require.NotEmpty(t, e.Data)
			require.False(t, e.Time.IsZero())
		}
		require.Less(t, mine.calls, len(mine.all())/10, "many in one call")
		calls := mine.calls
		_, err := f.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, calls, mine.calls, "nothing new, no call")
		require.EqualValues(t, len(mine.all()), w.at(t, w.acme).Delivered)
		verifytest.Clean(t, w.db)
	})

	t.Run("a filter leaves what is not asked for, and its place moves on", func(t *testing.T) {
		t.Parallel()
		w, runs, other := setup(t), listen(t), listen(t)
		w.subscribe(t, w.acme, runs, subscription.Settings{Name: "runs", Types: []string{"run.*"}})
		w.subscribe(t, w.acme, other, subscription.Settings{Types: []string{"run.created"}, Workspace: "default", Pipeline: "other"})
		for range 10 {
			w.run(t, w.acme, "single")
		}
		w.run(t, w.acme, "other")
		w.run(t, w.globex, "other")
		f := w.feed(t)
		until(t, f, runs, 11)
		until(t, f, other, 1)
		require.Equal(t, slices.Repeat([]string{"run.created"}, 11), runs.types())
		require.Equal(t, []string{"run.created"}, other.types())
		for end := last(w.logged(t, id.Tenant{})); w.at(t, w.acme).After.String() != end; {
			_, err := f.Once(t.Context())
			require.NoError(t, err)
			require.NoError(t, t.Context().Err())
		}
	})

	t.Run("a delivery that could not be written down at first holds nothing up", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		// More collisions than a transaction is tried again for. The clock is stopped: a subscription
		// that waits for the end of its lease would receive nothing more.
		w.db.Exec(t, `
			CREATE SEQUENCE servo.collisions;
			GRANT USAGE ON servo.collisions TO servo_engine;
			CREATE FUNCTION servo.collide() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN
				IF nextval('servo.collisions') <= 20 THEN
					RAISE EXCEPTION 'collided' USING ERRCODE = '40001';
				END IF;
				RETURN NEW;
			END $$;
			CREATE TRIGGER collide BEFORE UPDATE OF delivered ON servo.subscriptions FOR EACH ROW EXECUTE FUNCTION servo.collide()`)
		f := w.feed(t)
		_, err := f.Once(t.Context())
		require.NoError(t, err)
		w.run(t, w.acme, "single")
		require.Eventually(t, func() bool { // transactions of other tests may hold the feed back
			_, err = f.Once(t.Context())
			return err == nil && slices.Equal(w.logged(t, w.acme), r.ids())
		}, time.Minute, 10*time.Millisecond)
	})

	t.Run("a receiver that is down for a while misses nothing", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		f := w.feed(t)
		r.answers(http.StatusServiceUnavailable)
		for tries := 1; w.at(t, w.acme).Tries < 3; tries++ {
			_, err := f.Once(t.Context())
			require.NoError(t, err)
			w.run(t, w.acme, "single")
			w.forward(t, 10*time.Minute)
			require.NoError(t, t.Context().Err())
		}
		failing := w.at(t, w.acme)
		require.Contains(t, failing.Error, "503")
		require.False(t, failing.FailingSince.IsZero())
		require.Equal(t, event.Position{Epoch: 1}, failing.After, "its place stays")
		r.answers(0)
		until(t, f, r, len(w.logged(t, w.acme)))
		require.Equal(t, w.logged(t, w.acme), r.ids())
		require.Empty(t, w.at(t, w.acme).Error)
	})

	t.Run("after three days of failures it is paused, and continues from its position when it is resumed", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		f := w.feed(t)
		r.answers(http.StatusNotFound)
		for w.at(t, w.acme).PausedAt.IsZero() {
			_, err := f.Once(t.Context())
			require.NoError(t, err)
			w.forward(t, 12*time.Hour)
			require.NoError(t, t.Context().Err())
		}
		require.Contains(t, w.at(t, w.acme).PauseReason, "404")
		calls := r.calls
		_, err := f.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, calls, r.calls, "it is not called again")
		r.answers(0)
		require.NoError(t, w.ResumeSubscription(t.Context(), w.acme, "hook", meta))
		until(t, f, r, len(w.logged(t, w.acme)))
		require.Equal(t, w.logged(t, w.acme), r.ids())
		verifytest.Clean(t, w.db)
	})
}

func last(of []string) string { return of[len(of)-1] }

func TestSenders(t *testing.T) {
	t.Parallel()

	t.Run("a server that dies between the call and its note has it repeated, and nothing is left out", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		taken, _, err := w.TakeSubscriptions(t.Context(), 10) // it posts, and dies
		require.NoError(t, err)
		require.Len(t, taken, 1)
		var batches []subscription.Batch
		for len(batches) == 0 || batches[0].Events == 0 { // what others have not committed holds the log back
			page, err := w.db.Feed(t.Context(), taken[0].After, 10, false)
			require.NoError(t, err)
			batches, err = taken[0].Batches(page)
			require.NoError(t, err)
		}
		sender := webhook.NewSender("test", here)
		t.Cleanup(sender.Close)
		require.Empty(t, sender.Post(t.Context(), webhook.Message{URL: r.URL, ID: batches[0].ID, Secret: taken[0].Secret, Body: batches[0].Body}, w.now))
		repeated := r.ids()

		f := w.feed(t)
		_, err = f.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, repeated, r.ids(), "until its lease is over no other server takes it")
		w.forward(t, w.FollowLease())
		until(t, f, r, len(repeated)+len(w.logged(t, w.acme)))
		require.Equal(t, slices.Concat(repeated, w.logged(t, w.acme)), r.ids())

		all, err := w.EventsDelivered(t.Context(), engine.Delivery{Of: taken[0], After: batches[0].Upto, Events: batches[0].Events})
		require.NoError(t, err)
		require.False(t, all, "who comes back after its lease moves nothing")
		require.Equal(t, last(w.logged(t, w.acme)), w.at(t, w.acme).After.String())
	})

	t.Run("two servers send nothing twice", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		for range 2 {
			f := feed.Start(w.db.Store, w.Engine, feed.Config{Version: "test", Guard: here, Every: 5 * time.Millisecond})
			t.Cleanup(f.Stop)
		}
		for range 100 {
			w.run(t, w.acme, "single")
		}
		for n := len(w.logged(t, w.acme)); len(r.all()) < n; {
			time.Sleep(time.Millisecond)
			require.NoError(t, t.Context().Err())
		}
		require.Equal(t, w.logged(t, w.acme), r.ids())
	})

	t.Run("a replay goes back, and what is on its way at the moment does not undo it", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		f := w.feed(t)
		n := len(w.logged(t, w.acme))
		until(t, f, r, n)
		w.run(t, w.acme, "single")
		taken, _, err := w.TakeSubscriptions(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, taken, 1)
		require.NoError(t, w.ReplaySubscription(t.Context(), w.acme, "hook", r.ids()[1], meta))
		all, err := w.EventsDelivered(t.Context(), engine.Delivery{Of: taken[0], After: event.Position{Epoch: 1, Tx: 1 << 40}, Events: 1})
		require.NoError(t, err)
		require.False(t, all)
		until(t, f, r, n+len(w.logged(t, w.acme))-2)
		require.Equal(t, slices.Concat(w.logged(t, w.acme)[:n], w.logged(t, w.acme)[2:]), r.ids())
	})

	t.Run("a paused or deleted one receives nothing", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		require.NoError(t, w.PauseSubscription(t.Context(), w.acme, "hook", "later", meta))
		require.NoError(t, w.PauseSubscription(t.Context(), w.acme, "hook", "later", meta))
		f := w.feed(t)
		_, err := f.Once(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.DeleteSubscription(t.Context(), w.acme, "hook", meta))
		require.Error(t, w.DeleteSubscription(t.Context(), w.acme, "hook", meta))
		_, err = f.Once(t.Context())
		require.NoError(t, err)
		require.Zero(t, r.calls)
		verifytest.Clean(t, w.db)
	})

	t.Run("a long transaction of another session delays all events, and then nothing is missing", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.subscribe(t, w.acme, r, subscription.Settings{})
		f := w.feed(t)
		until(t, f, r, len(w.logged(t, w.acme)))
		held := w.db.Connect(t)
		tx, err := held.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT pg_current_xact_id()`)
		require.NoError(t, err)
		before := len(r.all())
		w.run(t, w.acme, "single")
		w.forward(t, time.Hour)
		_, err = f.Once(t.Context())
		require.NoError(t, err)
		require.Len(t, r.all(), before)
		state, err := w.db.FeedState(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Hour, state.Age)
		require.Equal(t, time.Hour, state.Lag)
		require.NoError(t, tx.Rollback(t.Context()))
		until(t, f, r, len(w.logged(t, w.acme)))
		require.Equal(t, w.logged(t, w.acme), r.ids())
	})
}

func TestCreate(t *testing.T) {
	t.Parallel()
	w, r := setup(t), listen(t)
	made := w.subscribe(t, w.acme, r, subscription.Settings{})
	text := strings.TrimPrefix(webhook.SecretText(made.Secret), "whsec_")
	require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.entity_events WHERE data::text LIKE '%`+text[:20]+`%'`), "no event has the secret")
	_, err := w.CreateSubscription(t.Context(), w.acme, subscription.Settings{Name: "x", URL: r.URL, Types: []string{"run.creatd"}}, "now", meta)
	require.ErrorContains(t, err, "run.creatd")
	for i := range subscription.Max - 1 {
		w.subscribe(t, w.acme, r, subscription.Settings{Name: "s" + strconv.Itoa(i)})
	}
	_, err = w.CreateSubscription(t.Context(), w.acme, subscription.Settings{Name: "x", URL: r.URL}, "now", meta)
	require.ErrorContains(t, err, "there are 20")
}
