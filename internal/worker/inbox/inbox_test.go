package inbox_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/worker/inbox"
)

// bundle is an inbox with a server of callbacks behind it.
type bundle struct {
	*inbox.Inbox

	client servov1.WorkerServiceClient
	tasks  servov1.TaskServiceClient
	key    push.Key
	server *httptest.Server

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request)
}

func setup(t *testing.T, patience time.Duration) *bundle {
	t.Helper()
	key, err := push.NewKey(rand.Reader, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	b := &bundle{key: key, Inbox: inbox.New(inbox.Options{Keys: push.WorkerKeys(key.Worker("gpu")), Patience: patience})}
	b.client, b.tasks = servov1.NewWorkerServiceClient(b.Inbox), servov1.NewTaskServiceClient(b.Inbox)
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		answer := b.answer
		b.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(b.server.Close)
	t.Cleanup(b.Release)
	return b
}

func (b *bundle) answers(f func(w http.ResponseWriter, r *http.Request)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

func (b *bundle) envelope(t *testing.T, changes ...func(*push.Envelope)) []byte {
	t.Helper()
	m := id.NewMinter(time.Now())
	c := push.Callback{Tenant: id.New[id.Tenant](m), Run: id.New[id.Run](m), Task: id.New[id.Task](m), Attempt: 1, Token: 7}
	urls, err := push.SignCallbacks(b.server.URL, c, b.key, time.Now().Add(time.Hour))
	require.NoError(t, err)
	e := push.Envelope{Pool: "gpu", Run: c.Run, Task: c.Task, Attempt: 1, Asset: "gold/a", Callbacks: urls}
	for _, change := range changes {
		change(&e)
	}
	raw, err := push.Sign(e, b.key, time.Now(), time.Minute, rand.Reader)
	require.NoError(t, err)
	return raw
}

func (b *bundle) post(t *testing.T, raw []byte) *httptest.ResponseRecorder {
	t.Helper()
	recorder := httptest.NewRecorder()
	b.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(string(raw))))
	return recorder
}

// lease posts an envelope and claims it.
func (b *bundle) lease(t *testing.T, changes ...func(*push.Envelope)) *servov1.Lease {
	t.Helper()
	raw := b.envelope(t, changes...)
	var posted sync.WaitGroup
	posted.Go(func() {
		if code := b.post(t, raw).Code; code != http.StatusAccepted {
			t.Errorf("status %d", code)
		}
	})
	response, err := b.client.Claim(t.Context(), &servov1.ClaimRequest{Max: 5, Wait: durationpb.New(time.Minute)})
	require.NoError(t, err)
	posted.Wait()
	require.Len(t, response.GetLeases(), 1)
	return response.GetLeases()[0]
}

func TestInbox(t *testing.T) {
	t.Parallel()

	t.Run("an envelope that is not taken is refused for now, and may be sent again", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Millisecond)
		raw := b.envelope(t)
		refused := b.post(t, raw)
		require.Equal(t, http.StatusTooManyRequests, refused.Code)
		require.Equal(t, "1", refused.Header().Get("Retry-After"))
		require.Equal(t, "application/problem+json", refused.Header().Get("Content-Type"))
		require.Equal(t, http.StatusTooManyRequests, b.post(t, raw).Code, "it was not remembered as taken")

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.client.Claim(ctx, &servov1.ClaimRequest{Max: 5, Wait: durationpb.New(time.Minute)})
		require.Equal(t, codes.Canceled, status.Code(err))
	})

	t.Run("a claim takes no more than it asked for, and nothing without waiting", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		var posted sync.WaitGroup
		for range 3 {
			raw := b.envelope(t)
			posted.Go(func() { b.post(t, raw) })
		}
		taken := 0
		for taken < 3 {
			none, err := b.client.Claim(t.Context(), &servov1.ClaimRequest{Max: 5, Wait: durationpb.New(0)})
			require.NoError(t, err)
			require.Empty(t, none.GetLeases())
			some, err := b.client.Claim(t.Context(), &servov1.ClaimRequest{Max: 1, Wait: durationpb.New(time.Minute)})
			require.NoError(t, err)
			require.Len(t, some.GetLeases(), 1)
			taken++
		}
		posted.Wait()
	})

	t.Run("a lease has all that the envelope has", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		var sent push.Envelope
		lease := b.lease(t, func(e *push.Envelope) {
			e.Tenant, e.Attempt, e.Entrypoint, e.Pipeline, e.Partition, e.Cursor, e.FanOuts = "acme", 4, "f", "daily", "p", "c", 2
			e.TimeoutSeconds, e.Trace.Parent = 90, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			e.Parameters, e.Upstream = json.RawMessage(`{"n":1}`), []push.Upstream{{Run: e.Run, Task: e.Task, Asset: "bronze/a", Partition: "q", Result: json.RawMessage(`[2]`)}}
			sent = *e
		})
		encoded, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(lease)
		require.NoError(t, err)
		run, task := sent.Run.String(), sent.Task.String()
		require.JSONEq(t, `{"lease":"`+task+`:4:0","tenant":"acme","run":"`+run+`","task":"`+task+`","attempt":4,"asset":"gold/a","partition":"p","pipeline":"daily",
			"parameters":{"n":1},"upstream":[{"run":"`+run+`","task":"`+task+`","asset":"bronze/a","partition":"q","result":[2]}],"cursor":"c","fan_outs":2,
			"timeout":"90s","code":{"go":{"handler":"f"}},"trace_parent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`, string(encoded))
	})

	t.Run("a stopping inbox takes nothing new, and knows what it has", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		raw := b.envelope(t)
		var posted sync.WaitGroup
		posted.Go(func() { b.post(t, raw) })
		_, err := b.client.Claim(t.Context(), &servov1.ClaimRequest{Max: 1, Wait: durationpb.New(time.Minute)})
		require.NoError(t, err)
		posted.Wait()
		b.Close()
		require.Equal(t, http.StatusAccepted, b.post(t, raw).Code)
		require.Equal(t, http.StatusServiceUnavailable, b.post(t, b.envelope(t)).Code)
	})

	t.Run("a signed envelope with invalid content is reported", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		answer := b.post(t, b.envelope(t, func(e *push.Envelope) { e.Parameters = json.RawMessage(`[1]`) }))
		require.Equal(t, http.StatusBadRequest, answer.Code)
		require.Contains(t, answer.Body.String(), "parameters")
	})

	t.Run("other calls are not for pushed tasks", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		_, err := b.client.StartTask(t.Context(), &servov1.StartTaskRequest{})
		require.Equal(t, codes.Unimplemented, status.Code(err))
		_, err = b.NewStream(t.Context(), nil, "x")
		require.Equal(t, codes.Unimplemented, status.Code(err))
	})
}

func started(lease string) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Start{Start: &servov1.Start{}}}
}

func completed(lease string) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{}}}
}

func TestCallbacks(t *testing.T) {
	t.Parallel()

	for code, want := range map[int]string{
		http.StatusForbidden: "STALE", http.StatusUnauthorized: "STALE", http.StatusNotFound: "STALE", http.StatusGone: "STALE",
		http.StatusConflict: "CONFLICT", http.StatusBadRequest: "INVALID_ARGUMENT", http.StatusRequestEntityTooLarge: "INVALID_ARGUMENT",
	} {
		t.Run(http.StatusText(code)+" means "+want, func(t *testing.T) {
			t.Parallel()
			b := setup(t, time.Minute)
			lease := b.lease(t).GetLease()
			b.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
			response, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{completed(lease)}})
			require.NoError(t, err)
			require.Equal(t, want, response.GetAnswers()[0].GetError().GetCode())
		})
	}

	for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusFound} {
		t.Run(http.StatusText(code)+" means that it is to be sent again", func(t *testing.T) {
			t.Parallel()
			b := setup(t, time.Minute)
			lease := b.lease(t).GetLease()
			b.answers(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3")
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(code)
			})
			_, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{completed(lease)}})
			require.Equal(t, codes.Unavailable, status.Code(err))
			_, err = b.client.Heartbeat(t.Context(), &servov1.HeartbeatRequest{Leases: []*servov1.HeartbeatItem{{Lease: lease}}})
			require.Equal(t, codes.Unavailable, status.Code(err))
			problem, ok := status.Convert(err).Details()[0].(*servov1.Problem)
			require.True(t, ok)
			require.Equal(t, 3*time.Second, problem.GetRetryAfter().AsDuration())
		})
	}

	t.Run("a server that is gone is unavailable, and its URLs are in no error", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		lease := b.lease(t).GetLease()
		b.server.Close()
		_, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{completed(lease)}})
		require.Equal(t, codes.Unavailable, status.Code(err))
		require.NotContains(t, err.Error(), "sig=")
	})

	t.Run("of two leases one without an answer does not delay the other", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		good, bad := b.lease(t), b.lease(t)
		b.answers(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.Contains(r.URL.Path, bad.GetTask()):
				w.WriteHeader(http.StatusServiceUnavailable)
			case strings.HasSuffix(r.URL.Path, "heartbeat"):
				_, _ = w.Write([]byte(`{"held":true,"should_cancel":true}`))
			default:
				_, _ = w.Write([]byte(`{"answers":[{},{}]}`))
			}
		})
		response, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{
			started(bad.GetLease()), started(good.GetLease()), completed(bad.GetLease()), completed(good.GetLease()),
		}})
		require.NoError(t, err)
		var got []string
		for _, answer := range response.GetAnswers() {
			got = append(got, answer.GetError().GetCode())
		}
		require.Equal(t, []string{"UNAVAILABLE", "", "UNAVAILABLE", ""}, got)
		beats, err := b.client.Heartbeat(t.Context(), &servov1.HeartbeatRequest{Leases: []*servov1.HeartbeatItem{{Lease: bad.GetLease()}, {Lease: good.GetLease()}}})
		require.NoError(t, err)
		require.True(t, beats.GetLeases()[0].GetHeld(), "no answer has revoked it")
		require.False(t, beats.GetLeases()[0].GetShouldCancel())
		require.True(t, beats.GetLeases()[1].GetShouldCancel())
	})

	t.Run("items that are refused together are reported one by one", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		lease := b.lease(t).GetLease()
		b.answers(func(w http.ResponseWriter, r *http.Request) {
			var request servov1.ReportRequest
			body, err := readAll(r)
			if err != nil || protojson.Unmarshal(body, &request) != nil || len(request.GetItems()) > 1 || request.GetItems()[0].GetComplete() != nil {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"code":"LIMIT_EXCEEDED","message":"too much"}`))
				return
			}
			_, _ = w.Write([]byte(`{"answers":[{}]}`))
		})
		response, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{started(lease), completed(lease)}})
		require.NoError(t, err)
		require.Nil(t, response.GetAnswers()[0].GetError())
		require.Equal(t, "LIMIT_EXCEEDED", response.GetAnswers()[1].GetError().GetCode())
		require.Equal(t, "too much", response.GetAnswers()[1].GetError().GetMessage())
	})

	t.Run("a lease that is not known here is lost", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		response, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{started("x")}})
		require.NoError(t, err)
		require.Equal(t, "STALE", response.GetAnswers()[0].GetError().GetCode())
		beats, err := b.client.Heartbeat(t.Context(), &servov1.HeartbeatRequest{Leases: []*servov1.HeartbeatItem{{Lease: "x"}}})
		require.NoError(t, err)
		require.False(t, beats.GetLeases()[0].GetHeld())
	})

	t.Run("answers outside the contract are an error of the server", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		lease := b.lease(t).GetLease()
		for _, answer := range []string{`{"answers":[]}`, `no JSON`} {
			b.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer)) })
			response, err := b.client.Report(t.Context(), &servov1.ReportRequest{Items: []*servov1.ReportItem{started(lease)}})
			require.NoError(t, err)
			require.Equal(t, "INTERNAL", response.GetAnswers()[0].GetError().GetCode())
		}
	})

	t.Run("a result that cannot be read is reported", func(t *testing.T) {
		t.Parallel()
		b := setup(t, time.Minute)
		lease := b.lease(t, func(e *push.Envelope) { e.Callbacks.Upstream = "" })
		_, err := b.tasks.ListUpstreamTasks(t.Context(), &servov1.ListUpstreamTasksRequest{Task: lease.GetTask()})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "too large")
	})
}

func readAll(r *http.Request) ([]byte, error) {
	var body json.RawMessage
	err := json.NewDecoder(r.Body).Decode(&body)
	return body, errors.Join(err, r.Body.Close())
}
