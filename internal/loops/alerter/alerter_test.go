package alerter_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
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
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/alerter"
	"go.arco.dev/servo/internal/store"
)

// receivedCall is one call that a receiver got.
type receivedCall struct {
	id, signature string
	at            time.Time
	body          []byte
	kind, change  string
}

// receiver is the endpoint of a webhook.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	calls  []receivedCall
	answer int // the status; 0 is 200
}

func listen(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		seconds, _ := strconv.ParseInt(req.Header.Get("Webhook-Timestamp"), 10, 64)
		var p struct {
			Type string
			Data struct{ Kind string }
		}
		_ = json.Unmarshal(body, &p)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, receivedCall{
			id: req.Header.Get("Webhook-Id"), signature: req.Header.Get("Webhook-Signature"), at: time.Unix(seconds, 0), body: body,
			kind: p.Data.Kind, change: p.Type,
		})
		if r.answer != 0 {
			w.WriteHeader(r.answer)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []receivedCall {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]receivedCall(nil), r.calls...)
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = status
}

// until waits for so many calls.
func (r *receiver) until(t *testing.T, n int) []receivedCall {
	t.Helper()
	for len(r.all()) < n {
		require.NoError(t, t.Context().Err())
		time.Sleep(5 * time.Millisecond)
	}
	return r.all()
}

// world is an engine with a tenant and a config whose trouble is made by hand.
type world struct {
	*engine.Engine

	db     *servotest.Database
	tenant id.Tenant
	now    time.Time
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{db: servotest.DB(t), now: time.Now().UTC().Truncate(time.Second)}
	w.db.SetClock(t, w.now)
	w.Engine = engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
	t.Cleanup(w.Stop)
	meta := event.Meta{Actor: "test"}
	var err error
	w.tenant, err = w.CreateTenant(t.Context(), "acme", meta)
	require.NoError(t, err)
	parsed, err := asset.Parse([]byte(`{version: 1, assets: [{key: s/one, go: {}}], pipelines: [{name: single}]}`), "servo.yaml")
	require.NoError(t, err)
	_, err = w.Deploy(t.Context(), w.tenant, "default", parsed, meta)
	require.NoError(t, err)
	_, err = w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Meta: meta, Configs: []engine.SaveConfig{
		{Name: "cost", Spec: config.Spec{Pipeline: "single", Trigger: config.Trigger{Manual: true}}},
	}})
	require.NoError(t, err)
	return w
}

func (w *world) channel(t *testing.T, name string, r *receiver) []byte {
	t.Helper()
	_, secret, err := w.CreateChannel(t.Context(), w.tenant, alert.ChannelSettings{Name: name, URL: r.URL}, event.Meta{})
	require.NoError(t, err)
	return secret
}

// failures sets how often the config has failed.
func (w *world) failures(t *testing.T, n int) {
	t.Helper()
	w.db.Exec(t, `UPDATE servo.configs SET failures = `+strconv.Itoa(n))
}

func (w *world) start(t *testing.T) *alerter.Alerter {
	t.Helper()
	return w.startGuarded(t, netguard.NewGuard(netguard.Policy{Local: true}))
}

func (w *world) startGuarded(t *testing.T, guard *netguard.Guard) *alerter.Alerter {
	t.Helper()
	a := alerter.Start(w.db.Store, w.Engine, alerter.Config{Version: "test", Guard: guard})
	t.Cleanup(a.Stop)
	return a
}

func (w *world) forward(t *testing.T, d time.Duration) {
	t.Helper()
	w.now = w.now.Add(d)
	w.db.SetClock(t, w.now)
}

func TestAlerter(t *testing.T) {
	t.Parallel()

	t.Run("a receiver gets the beginning and the end, once each, with a valid signature", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		secret := w.channel(t, "hook", r)
		w.start(t)
		w.start(t) // a second server sends nothing twice
		w.failures(t, 1)
		r.until(t, 1)
		w.failures(t, 0)
		calls := r.until(t, 2)
		require.Equal(t, "alert.raised", calls[0].change)
		require.Equal(t, "alert.resolved", calls[1].change)
		for _, c := range calls {
			require.Equal(t, "PIPELINE_FAILED", c.kind)
			require.Equal(t, webhook.Sign(secret, c.id, c.at, c.body), c.signature)
			require.WithinDuration(t, w.now, c.at, time.Minute, "the time is the database's")
		}
		require.NotEqual(t, calls[0].id, calls[1].id)
		require.Len(t, r.all(), 2)
		verifytest.Clean(t, w.db)
	})

	t.Run("a receiver that answers with an error is asked again, with the same words", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.channel(t, "hook", r)
		r.answers(http.StatusServiceUnavailable)
		w.start(t)
		w.failures(t, 1)
		first := r.until(t, 1)[0]
		r.answers(http.StatusOK)
		w.failures(t, 0) // it is over before it was delivered
		for len(r.all()) < 3 {
			w.forward(t, 10*time.Second)
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, t.Context().Err())
		}
		calls := r.all()
		require.Equal(t, first.id, calls[1].id)
		require.Equal(t, first.body, calls[1].body)
		require.Equal(t, "alert.resolved", calls[2].change)
	})

	t.Run("a receiver that does not answer delays no other", func(t *testing.T) {
		t.Parallel()
		w, quick := setup(t), listen(t)
		stuck := make(chan struct{})
		hangs := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck }))
		t.Cleanup(hangs.Close)
		t.Cleanup(func() { close(stuck) })
		w.channel(t, "hangs", &receiver{Server: hangs})
		w.channel(t, "quick", quick)
		w.start(t)
		w.failures(t, 1)
		require.Equal(t, "alert.raised", quick.until(t, 1)[0].change)
	})

	t.Run("a loopback address is not called, and the alert has the reason", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.channel(t, "hook", r)
		w.startGuarded(t, nil)
		w.failures(t, 1)
		var sent []store.Delivery
		for len(sent) == 0 || sent[0].Error == "" {
			require.NoError(t, t.Context().Err())
			found, err := w.db.Alerts(t.Context(), store.AlertFilter{Tenant: w.tenant}, 10)
			require.NoError(t, err)
			if len(found) > 0 {
				_, sent, err = w.db.GetAlert(t.Context(), w.tenant, found[0].ID)
				require.NoError(t, err)
			}
		}
		require.Contains(t, sent[0].Error, "is a loopback address")
		require.False(t, sent[0].Again.IsZero())
		require.Empty(t, r.all())
	})

	t.Run("a server that dies between the call and its note has the call repeated", func(t *testing.T) {
		t.Parallel()
		w, r := setup(t), listen(t)
		w.channel(t, "hook", r)
		w.failures(t, 1)
		_, err := w.Watch(t.Context())
		require.NoError(t, err)
		taken, _, err := w.TakeMessages(t.Context(), 10) // by a server that dies
		require.NoError(t, err)
		require.Len(t, taken, 1)
		w.start(t)
		w.forward(t, w.MessageLease())
		require.Equal(t, taken[0].ID(), r.until(t, 1)[0].id)
	})
}

func TestSecret(t *testing.T) {
	t.Parallel()
	w, r := setup(t), listen(t)
	secret := w.channel(t, "hook", r)
	text := webhook.SecretText(secret)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	require.NoError(t, err)
	require.Equal(t, secret, raw)
	require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.entity_events WHERE data::text LIKE '%`+base64.StdEncoding.EncodeToString(secret)[:20]+`%'`))
}
