//go:build unix

package worker_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/data/secrets"
	"go.arco.dev/servo/internal/domain/secret"
	"go.arco.dev/servo/internal/worker"
)

const hidden = `p"ss word/42`

// withSecrets gives a worker one secret of the tenant acme.
func withSecrets(o *worker.Options) {
	o.Secrets = secrets.New(secrets.Settings{Allow: secret.Rules{{Tenants: []string{"acme"}, Secrets: []string{"env:DB"}}}},
		func(string) (string, bool) { return hidden, true })
	o.Executors = append(o.Executors, &worker.Exec{})
}

// sent is everything that the worker has sent to the server, as text.
func sent(b *bundle) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := ""
	for _, r := range b.requests {
		text += prototext.Format(r)
	}
	return text
}

func requireHidden(t *testing.T, b *bundle) {
	t.Helper()
	text := sent(b)
	for _, form := range secret.Forms(hidden) {
		require.NotContains(t, text, form)
	}
	require.Contains(t, text, "***", "something was redacted")
	require.Contains(t, text, "env:DB", "the read is logged, with the path")
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte("user:" + hidden + "@host"))
	read := func(ctx context.Context, t *worker.Task) string {
		value, err := t.Secret(ctx, "${secret:env:DB}")
		if err != nil || value != hidden {
			return "no secret"
		}
		t.Logger().Info("got "+value, "again", encoded)
		t.Progress(&servov1.Progress{Phase: "P", Stage: value})
		return value
	}

	t.Run("logged, reported and returned", func(t *testing.T) {
		t.Parallel()
		b := start(t, handlers{"s/one": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
			value := read(ctx, task)
			result, err := worker.Marshal(map[string]any{"value": value, "encoded": encoded, value: []string{"x" + value}})
			return worker.Result{JSON: result}, err
		}}, withSecrets)
		id := b.add(1, "s/one")[0]
		b.ended(t, id)
		require.Equal(t, "Complete", b.lease(id).state, b.lease(id).failure)
		require.NoError(t, b.stopped())
		requireHidden(t, b)
	})

	t.Run("raised, in a message, in details and by a panic", func(t *testing.T) {
		t.Parallel()
		b := start(t, handlers{
			"s/error": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
				value := read(ctx, task)
				return worker.Result{}, &worker.Error{Code: "X", Message: "login failed with " + value, Details: map[string]any{"url": encoded, "list": []any{value}}, Cause: errors.New(value)}
			},
			"s/panic": func(ctx context.Context, task *worker.Task) (worker.Result, error) { panic("bad " + read(ctx, task)) },
		}, withSecrets)
		first, second := b.add(1, "s/error")[0], b.add(1, "s/panic")[0]
		b.ended(t, first, second)
		require.Equal(t, "X", b.lease(first).failure.GetCode(), "the code stays")
		require.Contains(t, b.lease(first).failure.GetMessage(), "login failed with ***")
		require.NoError(t, b.stopped())
		requireHidden(t, b)
	})

	t.Run("a position with a secret is refused", func(t *testing.T) {
		t.Parallel()
		b := start(t, handlers{"s/one": func(ctx context.Context, task *worker.Task) (worker.Result, error) {
			return worker.Result{}, task.Advance(ctx, "after "+read(ctx, task))
		}}, withSecrets)
		id := b.add(1, "s/one")[0]
		b.ended(t, id)
		require.Contains(t, b.lease(id).failure.GetMessage(), "contains a secret")
		require.NoError(t, b.stopped())
		requireHidden(t, b)
	})

	t.Run("in the environment of a command", func(t *testing.T) {
		t.Parallel()
		b := start(t, nil, withSecrets)
		id := b.add(1, "s/one", shell(`echo "it is $PW" >&2; test "$PW" = 'x p"ss word/42 y' && exit 3`), func(l *servov1.Lease) {
			l.GetCode().GetExec().Env = map[string]string{"PW": "x ${secret:env:DB} y"}
		})[0]
		b.ended(t, id)
		require.Contains(t, b.lease(id).failure.GetMessage(), "code 3", "the command has the value")
		require.NoError(t, b.stopped())
		requireHidden(t, b)
	})

	t.Run("in a header of a call", func(t *testing.T) {
		t.Parallel()
		seen := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Header.Get("Authorization")
			http.Error(w, "you sent "+r.Header.Get("Authorization"), http.StatusBadRequest)
		}))
		t.Cleanup(server.Close)
		calls := worker.NewHTTP(1, netguard.NewGuard(netguard.Policy{Local: true}))
		t.Cleanup(calls.Close)
		b := start(t, nil, withSecrets, func(o *worker.Options) { o.Executors = []worker.Executor{calls} })
		id := b.add(1, "s/one", func(l *servov1.Lease) {
			l.Code = &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Method: http.MethodPost, Url: server.URL, Headers: map[string]string{"Authorization": "Bearer ${secret:env:DB}"}}}}
		})[0]
		b.ended(t, id)
		require.Equal(t, "Bearer "+hidden, <-seen)
		require.NoError(t, b.stopped())
		requireHidden(t, b)
	})

	t.Run("another tenant, another secret, no secrets at all", func(t *testing.T) {
		t.Parallel()
		one := func(ref string) func(context.Context, *worker.Task) (worker.Result, error) {
			return func(ctx context.Context, task *worker.Task) (worker.Result, error) {
				_, err := task.Secret(ctx, ref)
				return worker.Result{}, err
			}
		}
		b := start(t, handlers{"s/db": one("env:DB"), "s/other": one("env:OTHER"), "s/bad": one("DB")}, withSecrets)
		for asset, code := range map[string]string{"s/db": "AUTHORIZATION_FAILED", "s/other": "AUTHORIZATION_FAILED", "s/bad": "INVALID_CONFIGURATION"} {
			id := b.add(1, asset, func(l *servov1.Lease) {
				if asset == "s/db" {
					l.Tenant = "globex"
				}
			})[0]
			b.ended(t, id)
			require.Equal(t, code, b.lease(id).failure.GetCode(), asset)
		}
		require.NoError(t, b.stopped())
		none := start(t, handlers{"s/db": one("env:DB")})
		id := none.add(1, "s/db")[0]
		none.ended(t, id)
		require.Contains(t, none.lease(id).failure.GetMessage(), "this worker has no secrets")
		require.NoError(t, none.stopped())
	})
}
