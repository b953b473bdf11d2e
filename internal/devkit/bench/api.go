package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// APIOptions are the rate and the duration of the calls.
type APIOptions struct {
	Executable string
	Rate       int // calls a second
	For        time.Duration
	Logger     *slog.Logger
	// Progress is called after the measurement of each edge.
	Progress func(APIResult) error
}

// APIResult is how long calls over one edge took, from the moment that they were due.
type APIResult struct {
	Edge   string  `json:"edge"`
	Calls  int     `json:"calls"`
	Failed int     `json:"failed"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// warmUp is how many calls are made before the clock runs: connections are opened, and what
// servers remember is read.
const warmUp = 100

// RunAPI measures reads of one tenant with its key, on a server with rates: a run, and the list
// of runs, by turns. Calls are due at a steady pace, whether the ones before them have ended or
// not: a server that stalls is seen by all that were due meanwhile.
func RunAPI(ctx context.Context, o APIOptions) ([]APIResult, error) {
	f := &fleet{executable: o.Executable}
	defer func() { f.close() }()
	key, web, err := f.keyed(ctx, o)
	if err != nil {
		return nil, err
	}
	over, err := client.New(client.Options{Servers: []string{f.address}, APIKey: key})
	if err != nil {
		return nil, err
	}
	f.undo = append(f.undo, func() { _ = over.Close() })
	run, err := prepareReads(ctx, over)
	if err != nil {
		return nil, err
	}
	edges := []struct {
		name string
		call func(ctx context.Context, number int) error
	}{
		{"REST", func(ctx context.Context, number int) error {
			path := "/v1/tenants/bench/runs/" + run
			if number%2 == 1 {
				path = "/v1/tenants/bench/runs?page_size=20"
			}
			return get(ctx, web+path, key)
		}},
		{"gRPC", func(ctx context.Context, number int) (err error) {
			if number%2 == 1 {
				_, err = over.Runs().ListRuns(ctx, &servov1.ListRunsRequest{Tenant: "bench", PageSize: 20})
			} else {
				_, err = over.Runs().GetRun(ctx, &servov1.GetRunRequest{Tenant: "bench", Run: run})
			}
			return err
		}},
	}
	var results []APIResult
	for _, edge := range edges {
		for number := range warmUp {
			if err := edge.call(ctx, number); err != nil {
				return results, fmt.Errorf("%s: %w", edge.name, err)
			}
		}
		result, err := paced(ctx, o, edge.call)
		if err != nil {
			return results, err
		}
		result.Edge = edge.name
		results = append(results, result)
		if o.Progress != nil {
			if err := o.Progress(result); err != nil {
				return results, err
			}
		}
	}
	return results, nil
}

// keyed starts PostgreSQL and a server that asks for keys, with a tenant that has one.
func (f *fleet) keyed(ctx context.Context, o APIOptions) (key, web string, err error) {
	pg, err := devpg.Start(ctx, devpg.Options{Settings: settings(), Logger: o.Logger})
	if err != nil {
		return "", "", err
	}
	f.undo = append(f.undo, func() { _ = pg.Stop(context.WithoutCancel(ctx)) })
	f.database, f.postmaster = pg.URL("postgres"), pg.PID()
	if key, err = tenantKey(ctx, f.database); err != nil {
		return "", "", err
	}
	ports, err := freePorts(ctx, 2)
	if err != nil {
		return "", "", err
	}
	f.address = ports[1]
	f.server, err = f.start(ctx, "server", "--rate-list", "1000000", "--rate-trigger", "0", "--database", f.database, "--http", ports[0], "--grpc", f.address, "--log-level", "warn")
	if err != nil {
		return "", "", err
	}
	return key, "http://" + ports[0], f.server.waitReady(ctx, "http://"+ports[0]+"/readyz")
}

// tenantKey makes the schema, a tenant and its key.
func tenantKey(ctx context.Context, database string) (string, error) {
	s, err := store.Open(ctx, store.Options{URL: database})
	if err != nil {
		return "", err
	}
	defer s.Close()
	if _, err := s.Migrate(ctx); err != nil {
		return "", err
	}
	if err := s.Prepare(ctx); err != nil {
		return "", err
	}
	e := engine.New(s, engine.Config{}, slog.New(slog.DiscardHandler))
	defer e.Stop()
	owner, err := e.CreateTenant(ctx, "bench", event.Meta{Actor: "bench"})
	if err != nil {
		return "", err
	}
	_, secret, err := e.CreateAPIKey(ctx, owner, access.Settings{Name: "bench", Role: access.TenantAdmin}, 0, event.Meta{Actor: "bench"})
	return secret.Text(), err
}

// prepareReads makes the runs that are read.
func prepareReads(ctx context.Context, over *client.Client) (run string, err error) {
	manifest := &structpb.Struct{}
	if err := manifest.UnmarshalJSON([]byte(`{"version":1,"assets":[{"key":"a/b","go":{}}],"pipelines":[{"name":"p","overlap":"allow"}]}`)); err != nil {
		return "", err
	}
	if _, err := over.Deployments().Deploy(ctx, &servov1.DeployRequest{Tenant: "bench", Manifest: manifest}); err != nil {
		return "", err
	}
	for range 10 { // as many as a new tenant may have
		made, err := over.Runs().TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: "bench", Pipeline: "p"})
		if err != nil {
			return "", err
		}
		run = made.GetRun().GetId()
	}
	return run, nil
}

func get(ctx context.Context, url, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var answer json.RawMessage
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection is used again
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", res.Status, answer)
	}
	return nil
}

// paced makes a call each time that one is due, and waits for none of them but at the end.
func paced(ctx context.Context, o APIOptions, call func(ctx context.Context, number int) error) (APIResult, error) {
	n := int(o.For.Seconds() * float64(o.Rate))
	took, failed := make([]time.Duration, n), make([]bool, n)
	var group sync.WaitGroup
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(o.Rate))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return APIResult{}, ctx.Err()
		}
		group.Go(func() {
			failed[i] = call(ctx, i) != nil
			took[i] = time.Since(due)
		})
	}
	group.Wait()
	result := APIResult{Calls: n, P50: milliseconds(took, 0.5), P99: milliseconds(took, 0.99), Max: milliseconds(took, 1)}
	for _, f := range failed {
		if f {
			result.Failed++
		}
	}
	return result, nil
}
