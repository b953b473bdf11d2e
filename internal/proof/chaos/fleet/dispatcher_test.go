package fleet

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/store"
)

// deliveryBound is far above the lease of a dispatcher (10 s) and far below that of a worker (5 min).
const deliveryBound = 90 * time.Second

// TestKilledDispatcher kills the server that holds all slots of a push pool while its calls wait for
// an answer. Another server delivers the tasks, with default settings.
func TestKilledDispatcher(t *testing.T) {
	t.Parallel()
	const tasks = 12
	_, seed := settings(t)
	w := newSilentWorld(t, seed)
	first, again := make(chan struct{}, tasks), make(chan struct{}, tasks)
	endpoint := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var envelope struct {
			Attempt int `json:"attempt"`
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(raw, &envelope) != nil {
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		if envelope.Attempt == 1 {
			first <- struct{}{}
			<-r.Context().Done() // until its server is gone
			return
		}
		again <- struct{}{}
		_, _ = io.WriteString(rw, `{"status": "SUCCESS"}`)
	}))
	t.Cleanup(endpoint.Close)
	w.pushTo(t, endpoint.URL, tasks)
	for range tasks {
		_, err := w.clients[0].Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
		require.NoError(t, err)
	}
	for range tasks {
		<-first
	}
	var holder string
	require.NoError(t, w.query(t.Context(), `SELECT worker FROM servo.leases GROUP BY worker ORDER BY count(*) DESC, worker LIMIT 1`, &holder))
	var lost int
	require.NoError(t, w.query(t.Context(), `SELECT count(*) FROM servo.leases WHERE worker = '`+holder+`'`, &lost))
	var left []*process
	for _, p := range w.servers {
		if strings.HasPrefix(holder, "push/"+p.name+"-") {
			p.kill()
			continue
		}
		left = append(left, p)
	}
	require.Len(t, left, len(w.servers)-1, "%s is one of the servers", holder)
	killed := time.Now()
	patience := time.After(deliveryBound)
	for n := range lost {
		select {
		case <-again:
		case <-patience:
			require.FailNow(t, "tasks of the killed server were not delivered", "%d of %d", n, lost)
		}
	}
	t.Logf("%d tasks of the killed server were delivered by others after %v", lost, time.Since(killed).Round(time.Millisecond))
	for _, p := range left { // an orderly stop returns the rest
		require.NoError(t, p.retire(exitGood))
	}
	var leases int
	require.NoError(t, w.query(t.Context(), `SELECT count(*) FROM servo.leases`, &leases))
	require.Zero(t, leases, "leases that are left")
	db, err := store.Open(t.Context(), store.Options{URL: w.url})
	require.NoError(t, err)
	defer db.Close()
	verifytest.Clean(t, &servotest.Database{Store: db, URL: w.url})
}

// pushTo creates a push pool with as many slots as tasks, and deploys an asset for it.
func (w *world) pushTo(t *testing.T, url string, slots int32) {
	t.Helper()
	_, err := w.clients[0].Pools().CreatePool(t.Context(), &servov1.CreatePoolRequest{
		Name: "remote", Kind: servov1.Pool_PUSH, Url: url, MaxConcurrency: &slots,
	})
	require.NoError(t, err)
	manifest, err := structpb.NewStruct(map[string]any{
		"version": 1, "assets": []any{map[string]any{"key": "a/b", "pool": "remote", "go": map[string]any{}}},
		"pipelines": []any{map[string]any{"name": "p", "overlap": "allow"}},
	})
	require.NoError(t, err)
	_, err = w.clients[0].Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
	require.NoError(t, err)
}
