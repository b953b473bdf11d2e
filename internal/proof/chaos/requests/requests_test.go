package requests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// Some thirty for each path; make soak sends 18,000 and 4,000.
	restRequests = 2_500 // make soak sends more
	grpcCalls    = 1_000
	senders      = 12
	// mostGrowth is what a server may hold on to between the first quarter and the end: what it
	// remembers on purpose has its limits, and is full by then or small.
	mostGrowth = 16 << 20
	patience   = 3 * time.Minute // claims and triggers may ask to wait for one
)

// setting is a number of the environment.
func setting(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return n
}

// TestGeneratedRequests sends random valid and invalid requests, over REST and then over gRPC.
func TestGeneratedRequests(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	seed := setting(t, "SERVO_REQUESTS_SEED", uint64(time.Now().UnixNano()))
	n := int(setting(t, "SERVO_REQUESTS", restRequests))
	t.Logf("SERVO_REQUESTS_SEED=%d", seed)
	w := newWorld(t)
	base, err := url.Parse(w.URL)
	require.NoError(t, err)
	s := &storm{
		world: w, seed: seed, types: types(t), base: base, bad: naughty(), routes: routes(), statuses: map[int]int{}, answered: map[string]map[int]int{}, spent: map[string]time.Duration{},
		client: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: senders},
	}
	t.Cleanup(s.client.CloseIdleConnections)

	s.spread(t, 0, n/4, s.send)
	before := heap()
	s.spread(t, n/4, n, s.send)
	calls := s.grpc(t)
	s.spread(t, n, n+grpcCalls*n/restRequests, calls)
	after := heap()

	t.Logf("%d answers: %v; heap %d MiB after a quarter, %d MiB at the end", s.count.Load(), s.statuses, before>>20, after>>20)
	s.slowest(t)
	require.Empty(t, w.log.errors(), "the server's log has errors or panics")
	require.Less(t, after, before+mostGrowth, "the server holds on to requests")
	for _, r := range s.routes {
		require.NotEmpty(t, s.answered[r.method+" "+r.template], "nothing was sent to %s %s", r.method, r.template)
	}
	require.Greater(t, s.statuses[http.StatusOK], n/10, "too few requests mean anything")
	require.GreaterOrEqual(t, int(s.count.Load()), n, "too few requests could be sent")
}

// heap is what is in use when nothing is garbage.
func heap() uint64 {
	var stats runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// storm sends requests and judges the answers.
type storm struct {
	*world

	seed   uint64
	types  map[string][]int
	base   *url.URL
	bad    []string
	routes []route
	client *http.Transport
	count  atomic.Int64

	mu       sync.Mutex
	statuses map[int]int
	answered map[string]map[int]int
	spent    map[string]time.Duration
}

// generator is the one of the request with a number: the same for the same seed.
func (s *storm) generator(number int) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(s.seed, uint64(number))), known: s.known, bad: s.bad} //nolint:gosec // it is to be the same again
}

// spread sends the requests from one number to another, several at a time. It ends with the
// first that has a bad answer.
func (s *storm) spread(t *testing.T, from, to int, send func(ctx context.Context, number int) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(from))
	var group sync.WaitGroup
	for range senders {
		group.Go(func() {
			for {
				number := int(next.Add(1) - 1)
				if number >= to || ctx.Err() != nil {
					return
				}
				if err := send(ctx, number); err != nil && ctx.Err() == nil {
					cancel(fmt.Errorf("SERVO_REQUESTS_SEED=%d, request %d: %w", s.seed, number, err))
				}
			}
		})
	}
	group.Wait()
	require.NoError(t, context.Cause(ctx))
}

// send sends a request over REST. One that HTTP itself cannot carry is made tamer.
func (s *storm) send(ctx context.Context, number int) error {
	g := s.generator(number)
	to := s.routes[number%len(s.routes)]
	for range 100 {
		one := g.request(to, s.base, s.keys)
		if sent, err := s.try(ctx, one); sent {
			return err
		}
	}
	return fmt.Errorf("no request to %s could be sent", to.template)
}

func (s *storm) try(ctx context.Context, one request) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, one.method, s.URL, strings.NewReader(one.body))
	if err != nil {
		return false, err
	}
	req.URL, req.Header = one.target, one.header
	began := time.Now()
	res, err := s.client.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			return true, fmt.Errorf("no answer to %s: %w", one, err)
		}
		return false, err // no HTTP client would send it
	}
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		cancel() // it lasts for as long as the client reads
		s.note(one.route, res.StatusCode, 0)
		return true, nil
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return true, fmt.Errorf("the answer to %s breaks off: %w", one, err)
	}
	s.note(one.route, res.StatusCode, time.Since(began))
	if err := s.judge(one, res, data); err != nil {
		return true, fmt.Errorf("%w\n%s\nanswer: %d %v\n%s", err, one, res.StatusCode, res.Header, data)
	}
	return true, nil
}

func (s *storm) note(to route, status int, took time.Duration) {
	s.count.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[status]++
	name := to.method + " " + to.template
	if s.answered[name] == nil {
		s.answered[name] = map[int]int{}
	}
	s.answered[name][status]++
	s.spent[name] += took
}

// judge returns what is wrong with an answer.
func (s *storm) judge(one request, res *http.Response, data []byte) error {
	for name := range res.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			return fmt.Errorf("another origin is let in: %s", name)
		}
	}
	switch {
	case res.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("the server failed")
	case res.Header.Get("X-Request-Id") == "":
		// HTTP's own answer to what is no request, or another page of the server's.
		return nil
	case one.method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.Header.Get("Content-Encoding") != "":
		return nil
	case res.StatusCode < http.StatusBadRequest:
		if res.Header.Get("Content-Type") == "application/json" && !json.Valid(data) {
			return fmt.Errorf("the answer is not JSON")
		}
		return nil
	}
	var doc struct {
		Type, Title, Detail, Code, Message string
		Status                             int
	}
	if kind := res.Header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("an error is %q", kind)
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return fmt.Errorf("the problem is not JSON: %w", err)
	}
	if !slices.Contains(s.types[doc.Type], res.StatusCode) {
		return fmt.Errorf("docs/errors.md does not have %q with the status %d", doc.Type, res.StatusCode)
	}
	if doc.Status != res.StatusCode || doc.Title == "" || doc.Detail == "" || doc.Code == "" || doc.Message == "" {
		return fmt.Errorf("the problem is not whole")
	}
	return nil
}

// slowest logs where the time went, and which paths have never succeeded.
func (s *storm) slowest(t *testing.T) {
	t.Helper()
	var names, never []string
	for name, statuses := range s.answered {
		names = append(names, name)
		if statuses[http.StatusOK] == 0 {
			never = append(never, fmt.Sprint(name, statuses))
		}
	}
	slices.SortFunc(names, func(a, b string) int { return int(s.spent[b] - s.spent[a]) })
	for _, name := range names[:5] {
		t.Logf("%v for %s", s.spent[name].Round(time.Millisecond), name)
	}
	slices.Sort(never)
	t.Logf("%d of %d paths have never succeeded: %s", len(never), len(names), strings.Join(never, "; "))
}
