package dispatcher_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/domain/push"
)

// working is a world whose worker has accepted the first task of a pipeline.
func working(t *testing.T, pipeline string) (w *world, run string, e push.Envelope) {
	t.Helper()
	got := make(chan push.Envelope, 10)
	w = setup(t, daemon.Config{}, nil, func(c call) {
		got <- c.Envelope
		c.answer(http.StatusAccepted, "")
	})
	run = w.trigger(t, pipeline)
	e = <-got
	if pipeline == "one" {
		w.taskIn(t, run, servov1.Task_RUNNING)
	}
	return w, run, e
}

// signing is the key that the servers sign with.
func (w *world) signing(t testing.TB) push.Key {
	t.Helper()
	rows, now, err := w.db.SigningKeys(t.Context())
	require.NoError(t, err)
	var ring push.Keyring
	for _, r := range rows {
		ring = append(ring, push.Key{ID: r.ID, Secret: r.Secret, CreatedAt: r.CreatedAt, ActiveAt: r.SignsFrom, ExpiresAt: r.ExpiresAt, RevokedAt: r.RevokedAt})
	}
	key, err := ring.Signing(now)
	require.NoError(t, err)
	return key
}

// callbackOf is what the URLs of an envelope stand for.
func (w *world) callbackOf(t testing.TB, e push.Envelope, action push.Action) push.Callback {
	t.Helper()
	u, err := url.Parse(e.Callbacks.Status)
	require.NoError(t, err)
	presented, err := push.VerifyCallback(http.MethodPost, u, push.Keyring{w.signing(t)}, time.Now())
	require.NoError(t, err)
	presented.Action = action
	return presented.Callback
}

func (w *world) sign(t testing.TB, c push.Callback, key push.Key, expires time.Time) string {
	t.Helper()
	signed, err := push.SignCallback(w.server.URL, push.CallbackMethod, c, key, expires)
	require.NoError(t, err)
	return signed
}

func TestCallbacksAreRefusedAlike(t *testing.T) {
	t.Parallel()
	w, run, e := working(t, "one")
	good := e.Callbacks.Heartbeat
	body := []byte(`{}`)
	status, refusal := send(t, http.MethodPost, good+"0", body)
	require.Equal(t, http.StatusForbidden, status, refusal)
	require.Contains(t, refusal, `"code":"FORBIDDEN"`)
	require.NotContains(t, refusal, "signature")
	refused := func(t testing.TB, method, address string) {
		t.Helper()
		status, answer := send(t, method, address, body)
		require.Equal(t, http.StatusForbidden, status, "%s %s: %s", method, address, answer)
		require.Equal(t, refusal, answer, "%s %s", method, address)
	}

	unchanged := func(t testing.TB) {
		t.Helper()
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.leases WHERE run_id = $1::uuid AND started_at IS NOT NULL`, run), "nothing has changed")
	}

	t.Run("every byte counts", func(t *testing.T) {
		t.Parallel()
		defer unchanged(t)
		begins := strings.Index(good, push.CallbackPath) + len(push.CallbackPath)
		for i := begins; i < len(good); i++ {
			for _, other := range []byte{'0', 'a', 'Z', '/', '.', '&'} {
				if good[i] == other {
					continue
				}
				refused(t, http.MethodPost, good[:i]+string(other)+good[i+1:])
				if other == '0' {
					refused(t, http.MethodPost, good[:i]+good[i+1:])
				}
			}
		}
	})

	t.Run("for anything else than it was signed for", func(t *testing.T) {
		t.Parallel()
		defer unchanged(t)
		c := w.callbackOf(t, e, push.ActionHeartbeat)
		u, err := url.Parse(good)
		require.NoError(t, err)
		for _, change := range []func(*push.Callback){
			func(c *push.Callback) { c.Tenant = id.Of[id.Tenant](uuid.New()) },
			func(c *push.Callback) { c.Run = id.Of[id.Run](uuid.New()) },
			func(c *push.Callback) { c.Task = id.Of[id.Task](uuid.New()) },
			func(c *push.Callback) { c.Attempt++ },
			func(c *push.Callback) { c.Action = push.ActionStatus },
		} {
			other := c
			change(&other)
			signed := w.sign(t, other, w.signing(t), e.Callbacks.ExpiresAt)
			path, _, _ := strings.Cut(signed, "?")
			refused(t, http.MethodPost, path+"?"+u.RawQuery)
		}
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions, "INVENTED"} {
			refused(t, method, good)
		}
		for _, query := range []string{"", u.RawQuery + "&x=1", u.RawQuery + "&" + u.RawQuery, "x=1&" + u.RawQuery} {
			refused(t, http.MethodPost, w.server.URL+u.Path+"?"+query)
		}
		refused(t, http.MethodPost, w.server.URL+push.CallbackPath+strings.ToUpper(strings.TrimPrefix(u.Path, push.CallbackPath))+"?"+u.RawQuery)
	})

	t.Run("when it has expired, or the key is not one of ours", func(t *testing.T) {
		t.Parallel()
		defer unchanged(t)
		c := w.callbackOf(t, e, push.ActionHeartbeat)
		refused(t, http.MethodPost, w.sign(t, c, w.signing(t), time.Now().Add(-time.Second)))
		other := w.signing(t)
		other.Secret = append(push.Secret{}, other.Secret...)
		other.Secret[0] ^= 1
		refused(t, http.MethodPost, w.sign(t, c, other, time.Now().Add(time.Hour)))
		other.ID = "sk-missing"
		refused(t, http.MethodPost, w.sign(t, c, other, time.Now().Add(time.Hour)))
	})
}

func TestCallbackURLsAreRenewed(t *testing.T) {
	t.Parallel()

	t.Run("near their end", func(t *testing.T) {
		t.Parallel()
		w, _, e := working(t, "one")
		near := w.sign(t, w.callbackOf(t, e, push.ActionHeartbeat), w.signing(t), time.Now().Add(10*time.Minute))
		status, body := post(t, near, object{})
		require.Equal(t, http.StatusOK, status, body)
		var reply push.HeartbeatReply
		require.NoError(t, json.Unmarshal([]byte(body), &reply))
		require.NotNil(t, reply.Callbacks)
		require.WithinDuration(t, time.Now().Add(push.CallbackLifetime), reply.Callbacks.ExpiresAt, time.Minute)
		status, body = post(t, reply.Callbacks.Status, object{"complete": object{}})
		require.Equal(t, http.StatusOK, status, body)
	})

	t.Run("when their key ends before them; and a revoked key ends them at once", func(t *testing.T) {
		t.Parallel()
		w, run, e := working(t, "one")
		old := w.signing(t).ID
		rotated, err := w.keysOf.RotateSigningKeys(t.Context(), &servov1.RotateSigningKeysRequest{Lead: seconds(0), Overlap: seconds(600)})
		require.NoError(t, err)
		w.give(t, rotated.GetWorkerKeys()[0].GetKey())
		status, body := post(t, e.Callbacks.Heartbeat, object{})
		require.Equal(t, http.StatusOK, status, body)
		var reply push.HeartbeatReply
		require.NoError(t, json.Unmarshal([]byte(body), &reply))
		require.NotNil(t, reply.Callbacks)
		require.Contains(t, reply.Callbacks.Status, rotated.GetKey().GetId())

		_, err = w.keysOf.RevokeSigningKey(t.Context(), &servov1.RevokeSigningKeyRequest{Key: old})
		require.NoError(t, err)
		status, body = post(t, e.Callbacks.Heartbeat, object{})
		require.Equal(t, http.StatusForbidden, status, body)
		status, body = post(t, reply.Callbacks.Status, object{"complete": object{}})
		require.Equal(t, http.StatusOK, status, body)
		w.reach(t, run, servov1.Run_SUCCEEDED)
		w.reach(t, w.trigger(t, "one"), servov1.Run_RUNNING) // and envelopes are signed with the new one
		w.clean(t)
	})
}

func TestCallbackBodies(t *testing.T) {
	t.Parallel()
	_, _, e := working(t, "one")
	for _, c := range []struct {
		claim, url, body string
		status           int
		contains         string
	}{
		{"a field that is not known", e.Callbacks.Status, `{"complet": {}}`, 400, "complete"},
		{"something after the JSON", e.Callbacks.Status, `{"start": {"instance": "i"}} {}`, 400, ""},
		{"a duplicate key", e.Callbacks.Status, `{"start": {}, "start": {}}`, 400, ""},
		{"nothing to report", e.Callbacks.Status, `{}`, 400, ""},
		{"no items", e.Callbacks.Report, `{"items": []}`, 400, "items"},
		{"another lease", e.Callbacks.Status, `{"lease": "abc", "start": {"instance": "i"}}`, 400, "lease"},
		{"no instance", e.Callbacks.Status, `{"start": {}}`, 400, "start.instance"},
		{"another worker's task", e.Callbacks.Upstream, `{"tenant": "brick"}`, 400, "tenant"},
		{"an upstream that is none", e.Callbacks.Upstream, `{"task": "` + uuid.NewString() + `"}`, 404, ""},
		{"a negative ordinal", e.Callbacks.FanOut, `{"ordinal": -1, "tasks": [{"asset": "p/two"}]}`, 400, "ordinal"},
		{"too much", e.Callbacks.Report, `{"items": [{"log": {"seq": 1, "text": "` + strings.Repeat("x", 5<<20) + `"}}]}`, 413, ""},
	} {
		t.Run(c.claim+" is refused", func(t *testing.T) {
			t.Parallel()
			status, answer := send(t, http.MethodPost, c.url, []byte(c.body))
			require.Equal(t, c.status, status, answer)
			require.Contains(t, answer, c.contains)
		})
	}
	t.Run("what is no JSON is refused by its type", func(t *testing.T) {
		t.Parallel()
		response, err := http.Post(e.Callbacks.Status, "text/plain", strings.NewReader("start")) //nolint:noctx // a test
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusUnsupportedMediaType, response.StatusCode)
	})
}

func TestCallbackFanOutAndUpstream(t *testing.T) {
	t.Parallel()
	got := make(chan push.Envelope, 10)
	w := setup(t, daemon.Config{}, nil, func(c call) {
		got <- c.Envelope
		c.answer(http.StatusAccepted, "")
	})
	run := w.trigger(t, "both")
	first := <-got
	status, body := post(t, first.Callbacks.Status, object{"start": object{"instance": "i"}})
	require.Equal(t, http.StatusOK, status, body)
	fan := object{"ordinal": 0, "tasks": []object{{"asset": "p/two", "partition": "extra"}}}
	status, body = post(t, first.Callbacks.FanOut, fan)
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"added":["`)
	status, again := post(t, first.Callbacks.FanOut, fan)
	require.Equal(t, http.StatusOK, status, again)
	require.Contains(t, again, `"repeat":true`, "the same again adds nothing")
	status, body = post(t, first.Callbacks.Status, object{"complete": object{"result": object{"rows": 7}}})
	require.Equal(t, http.StatusOK, status, body)

	for range 2 {
		e := <-got
		status, body = post(t, e.Callbacks.Status, object{"start": object{"instance": "i"}})
		require.Equal(t, http.StatusOK, status, body)
		if e.Partition == "" { // the one that the plan has wait for the first
			status, body = post(t, e.Callbacks.Upstream, object{"run": first.Run, "task": first.Task})
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"result":{"rows":7}`)
			status, body = post(t, e.Callbacks.Upstream, object{"page_size": 10})
			require.Equal(t, http.StatusOK, status, body)
			require.Contains(t, body, `"result":{"rows":7}`)
		}
		status, body = post(t, e.Callbacks.Status, object{"complete": object{}})
		require.Equal(t, http.StatusOK, status, body)
	}
	w.reach(t, run, servov1.Run_SUCCEEDED)
	w.clean(t)
}
