package push_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/push"
)

const base = "https://servo.example.com"

func urlOf(t require.TestingT, c push.Callback, key push.Key) *url.URL {
	text, err := push.SignCallback(base, http.MethodPost, c, key, start.Add(time.Hour))
	require.NoError(t, err)
	u, err := url.Parse(text)
	require.NoError(t, err)
	return u
}

func TestCallback(t *testing.T) {
	t.Parallel()
	key := keyAt(t, 1, start)
	keys := push.Keyring{key}
	c := callbackOf(start)

	t.Run("a URL permits what it was signed for, token included", func(t *testing.T) {
		t.Parallel()
		got, err := push.VerifyCallback(http.MethodPost, urlOf(t, c, key), keys, start)
		require.NoError(t, err)
		require.Equal(t, push.Presented{Callback: c, KeyID: key.ID, ExpiresAt: start.Add(time.Hour)}, got)
	})

	t.Run("the way to the server is not part of it", func(t *testing.T) {
		t.Parallel()
		text, err := push.SignCallback("https://proxy.example.com/servo/", http.MethodPost, c, key, start.Add(time.Hour))
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(text, "https://proxy.example.com/servo/v1/callbacks/"))
		require.True(t, strings.HasSuffix(text, urlOf(t, c, key).RequestURI()))
	})

	t.Run("all URLs of an attempt work, each for its own action", func(t *testing.T) {
		t.Parallel()
		all, err := push.SignCallbacks(base, c, key, start.Add(time.Hour+time.Millisecond))
		require.NoError(t, err)
		require.Equal(t, start.Add(time.Hour), all.ExpiresAt)
		for action, text := range map[push.Action]string{
			push.ActionStatus: all.Status, push.ActionReport: all.Report, push.ActionHeartbeat: all.Heartbeat,
			push.ActionCursor: all.Cursor, push.ActionFanOut: all.FanOut, push.ActionUpstream: all.Upstream,
		} {
			u, err := url.Parse(text)
			require.NoError(t, err)
			got, err := push.VerifyCallback(push.CallbackMethod, u, keys, start)
			require.NoError(t, err)
			require.Equal(t, action, got.Action)
		}
	})

	for name, attack := range map[string]struct {
		method string
		keys   push.Keyring
		at     time.Time
	}{
		"another method":       {http.MethodGet, keys, start},
		"a method in lower":    {"post", keys, start},
		"an expired URL":       {http.MethodPost, keys, start.Add(time.Hour)},
		"an unknown key":       {http.MethodPost, push.Keyring{keyAt(t, 2, start)}, start},
		"no keys":              {http.MethodPost, nil, start},
		"a revoked key":        {http.MethodPost, push.Keyring{revoked(key, start)}, start},
		"an expired key":       {http.MethodPost, push.Keyring{retired(key, start)}, start},
		"another secret by id": {http.MethodPost, push.Keyring{{ID: key.ID, Secret: keyAt(t, 5, start).Secret}}, start},
		"a key without secret": {http.MethodPost, push.Keyring{{ID: key.ID}}, start},
	} {
		t.Run("refused with "+name, func(t *testing.T) {
			t.Parallel()
			_, err := push.VerifyCallback(attack.method, urlOf(t, c, key), attack.keys, attack.at)
			refused(t, err)
		})
	}

	t.Run("a signature is good for no other tenant, run, task, attempt, action, token or time", func(t *testing.T) {
		t.Parallel()
		other := callbackOf(start.Add(time.Second))
		good := urlOf(t, c, key)
		for part, change := range map[string]func(*push.Callback){
			"tenant": func(c *push.Callback) { c.Tenant = other.Tenant }, "run": func(c *push.Callback) { c.Run = other.Run },
			"task": func(c *push.Callback) { c.Task = other.Task }, "attempt": func(c *push.Callback) { c.Attempt++ },
			"action": func(c *push.Callback) { c.Action = push.ActionHeartbeat }, "token": func(c *push.Callback) { c.Token++ },
		} {
			changed := c
			change(&changed)
			forged := urlOf(t, changed, key)
			_, err := push.VerifyCallback(http.MethodPost, forged, keys, start)
			require.NoError(t, err, part)
			before, _, _ := strings.Cut(forged.RawQuery, "&sig=")
			_, sig, _ := strings.Cut(good.RawQuery, "&sig=")
			forged.RawQuery = before + "&sig=" + sig
			_, err = push.VerifyCallback(http.MethodPost, forged, keys, start)
			refused(t, err, part)
		}
		later := *good
		later.RawQuery = strings.Replace(later.RawQuery, fmt.Sprint(start.Add(time.Hour).Unix()), fmt.Sprint(start.Add(2*time.Hour).Unix()), 1)
		require.NotEqual(t, good.RawQuery, later.RawQuery)
		_, err := push.VerifyCallback(http.MethodPost, &later, keys, start)
		refused(t, err)
	})

	t.Run("what a worker has been given signs no callback", func(t *testing.T) {
		t.Parallel()
		worker := key.Worker("gpu")
		forged := urlOf(t, c, push.Key{ID: worker.ID, Secret: worker.Secret})
		_, err := push.VerifyCallback(http.MethodPost, forged, keys, start)
		refused(t, err)
	})

	t.Run("a URL has one spelling", func(t *testing.T) {
		t.Parallel()
		good := urlOf(t, c, key).String()
		path, query, _ := strings.Cut(good, "?")
		expires, others, _ := strings.Cut(query, "&")
		for name, text := range map[string]string{
			"upper case id":    strings.Replace(good, c.Task.String(), strings.ToUpper(c.Task.String()), 1),
			"escaped letter":   strings.Replace(good, "/status", "/statu%73", 1),
			"double slash":     strings.Replace(good, "/status", "//status", 1),
			"trailing slash":   path + "/?" + query,
			"attempt with +":   strings.Replace(good, "/3/", "/+3/", 1),
			"attempt with 0":   strings.Replace(good, "/3/", "/03/", 1),
			"more parameters":  good + "&more=1",
			"twice a token":    good + "&token=1",
			"other order":      path + "?" + others + "&" + expires,
			"fragment":         good + "#x",
			"no query":         path,
			"padded signature": good + "=",
			"id without lines": strings.Replace(good, c.Run.String(), strings.ReplaceAll(c.Run.String(), "-", ""), 1),
		} {
			require.NotEqual(t, good, text, name)
			u, err := url.Parse(text)
			require.NoError(t, err, name)
			_, err = push.VerifyCallback(http.MethodPost, u, keys, start)
			refused(t, err, name)
		}
	})

	t.Run("any changed byte is refused", func(t *testing.T) {
		t.Parallel()
		good := urlOf(t, c, key).RequestURI()
		rapid.Check(t, func(t *rapid.T) {
			changed := []byte(good)
			at := rapid.IntRange(0, len(good)-1).Draw(t, "at")
			changed[at] = rapid.ByteRange('!', '~').Filter(func(b byte) bool { return b != good[at] }).Draw(t, "to")
			u, err := url.ParseRequestURI(string(changed))
			if err != nil {
				return // no server sees it
			}
			_, err = push.VerifyCallback(http.MethodPost, u, keys, start)
			refused(t, err, string(changed))
		})
	})

	t.Run("nonsense is not signed", func(t *testing.T) {
		t.Parallel()
		wrong := c
		wrong.Action = "delete"
		_, err := push.SignCallback(base, http.MethodPost, wrong, key, start)
		require.True(t, fault.Is(err, fault.InvalidArgument))
		wrong = c
		wrong.Attempt = 0
		_, err = push.SignCallback(base, http.MethodPost, wrong, key, start)
		require.True(t, fault.Is(err, fault.InvalidArgument))
	})

	t.Run("URLs are renewed when half of their time is over or their key goes", func(t *testing.T) {
		t.Parallel()
		p := push.Presented{KeyID: key.ID, ExpiresAt: start.Add(push.CallbackLifetime)}
		require.False(t, keys.Renew(p, start))
		require.False(t, keys.Renew(p, start.Add(push.CallbackLifetime/2)))
		require.True(t, keys.Renew(p, start.Add(push.CallbackLifetime/2+time.Second)))
		require.True(t, push.Keyring{retired(key, start.Add(time.Hour))}.Renew(p, start))
		require.False(t, push.Keyring{retired(key, start.Add(3*time.Hour))}.Renew(p, start))
		require.True(t, push.Keyring{}.Renew(p, start))
	})
}
