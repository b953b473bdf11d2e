package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// watch reads a stream until its end, or until it has seen a number of events, and returns its
// position then.
func (b *bundle) watch(ctx context.Context, run, after string, most int) (seen []string, last string, end *servov1.Run, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := b.runs.WatchRun(ctx, &servov1.WatchRunRequest{Tenant: "acme", Run: run, After: after})
	if err != nil {
		return nil, after, nil, err
	}
	for last = after; len(seen) < most; {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return seen, last, end, nil
		}
		if err != nil {
			return seen, last, end, err
		}
		if end != nil {
			return seen, last, end, errors.New("something came after the end")
		}
		if end = message.GetEnd(); end == nil {
			e := message.GetEvent()
			seen = append(seen, fmt.Sprintf("%s %d", e.GetTask(), e.GetVersion()))
			last = e.GetId()
		}
	}
	return seen, last, end, nil
}

const everything = 1 << 30

func TestWatch(t *testing.T) {
	t.Parallel()

	t.Run("an ended run is streamed from its first event to its end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "diamond").GetId()
		b.drain(t)
		seen, _, end, err := b.watch(t.Context(), run, "", everything)
		require.NoError(t, err)
		require.Equal(t, servov1.Run_SUCCEEDED, end.GetState())
		require.NotNil(t, end.GetFinishedAt())
		var listed []string
		for _, e := range b.events(t, run) {
			listed = append(listed, fmt.Sprintf("%s %d", e.GetTask(), e.GetVersion()))
		}
		require.Equal(t, listed, seen)
	})

	t.Run("who resumes, again and again while workers work, misses nothing and sees nothing twice", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "fan").GetId()
		type result struct {
			seen []string
			end  *servov1.Run
			err  error
		}
		results := make(chan result)
		for size := 1; size <= 4; size++ {
			go func() {
				var r result
				for last := ""; r.end == nil && r.err == nil; {
					var seen []string
					seen, last, r.end, r.err = b.watch(t.Context(), run, last, size)
					r.seen = append(r.seen, seen...)
				}
				results <- r
			}()
		}
		whole := make(chan result)
		go func() {
			seen, _, end, err := b.watch(t.Context(), run, "", everything)
			whole <- result{seen, end, err}
		}()

		scan := b.one(t)
		fan := &servov1.FanOut{Barrier: true}
		for i := range 30 {
			fan.Tasks = append(fan.Tasks, &servov1.FanOutTask{Asset: "f/fetch", Partition: fmt.Sprint(i)})
		}
		for _, answer := range b.report(t, &servov1.ReportItem{Lease: scan.GetLease(), Action: &servov1.ReportItem_FanOut{FanOut: fan}}, complete(scan, nil)) {
			require.Nil(t, answer.GetError())
		}
		for range 4 { // some at a time
			for _, l := range b.claim(t, 7) {
				b.report(t, complete(l, nil))
			}
		}
		b.drain(t)

		all := <-whole
		require.NoError(t, all.err)
		require.Equal(t, servov1.Run_SUCCEEDED, all.end.GetState())
		require.Greater(t, len(all.seen), 32*3)
		requireOnce(t, all.seen)
		for range 4 {
			r := <-results
			require.NoError(t, r.err)
			require.Equal(t, all.seen, r.seen)
			require.Equal(t, servov1.Run_SUCCEEDED, r.end.GetState())
		}
	})

	t.Run("a client that is gone ends it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		_, last, end, err := b.watch(t.Context(), run, "", 1)
		require.NoError(t, err)
		require.Nil(t, end)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := b.runs.WatchRun(ctx, &servov1.WatchRunRequest{Tenant: "acme", Run: run, After: last})
		require.NoError(t, err)
		cancel()
		_, err = stream.Recv()
		require.Equal(t, codes.Canceled, status.Code(err))
		require.Eventually(t, func() bool { return len(b.log.with("call")) > 0 && watched(b) == 2 }, waitLong, waitShort)
	})

	t.Run("a server that stops reports it, and the position to continue from", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		stream, err := b.runs.WatchRun(t.Context(), &servov1.WatchRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		_, err = stream.Recv()
		require.NoError(t, err)
		b.server.Close()
		for err == nil {
			_, err = stream.Recv()
		}
		require.Positive(t, requireRefused(t, err, codes.Unavailable, "").GetRetryAfter().AsDuration())
	})

	t.Run("a place that is none is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		_, _, _, err := b.watch(t.Context(), run, "nonsense", everything)
		requireRefused(t, err, codes.InvalidArgument, "after")
		_, err = b.runs.ListRunEvents(t.Context(), &servov1.ListRunEventsRequest{Tenant: "acme", Run: run, PageToken: "nonsense"})
		requireRefused(t, err, codes.InvalidArgument, "page_token")
	})
}

// watched counts the streams that are over.
func watched(b *bundle) int {
	n := 0
	for _, call := range b.log.with("call") {
		if call["method"] == servov1.RunService_WatchRun_FullMethodName {
			n++
		}
	}
	return n
}

func requireOnce(t testing.TB, seen []string) {
	t.Helper()
	once := map[string]bool{}
	for _, s := range seen {
		require.False(t, once[s], s)
		once[s] = true
	}
}

func TestListRunEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := b.trigger(t, "diamond").GetId()
	b.drain(t)
	_, _, _, err := b.watch(t.Context(), run, "", everything) // then all of them can be read
	require.NoError(t, err)
	all := b.events(t, run)
	require.Greater(t, len(all), 10)

	t.Run("pages of any size give each event once, in one order", func(t *testing.T) {
		t.Parallel()
		var want []string
		for _, e := range all {
			want = append(want, e.GetId())
		}
		for _, size := range []int32{0, 1, 3, 100} {
			got := pages(t, func(token string) ([]string, string, error) {
				answer, err := b.runs.ListRunEvents(t.Context(), &servov1.ListRunEventsRequest{Tenant: "acme", Run: run, PageSize: size, PageToken: token})
				var ids []string
				for _, e := range answer.GetEvents() {
					ids = append(ids, e.GetId())
				}
				return ids, answer.GetNextPageToken(), err
			})
			require.Equal(t, want, got)
		}
	})

	t.Run("the id of an event is no page token", func(t *testing.T) {
		t.Parallel()
		_, err := b.runs.ListRunEvents(t.Context(), &servov1.ListRunEventsRequest{Tenant: "acme", Run: run, PageToken: all[9].GetId()})
		requireRefused(t, err, codes.InvalidArgument, "page_token")
	})

	t.Run("an event has its subject, its change and its time", func(t *testing.T) {
		t.Parallel()
		byType := map[string]*servov1.Event{}
		for _, e := range all {
			byType[e.GetType()] = e
			require.NotNil(t, e.GetRecordedAt())
			require.Positive(t, e.GetVersion())
		}
		require.Empty(t, byType["run.created"].GetTask())
		require.Equal(t, "diamond", byType["run.created"].GetData().GetFields()["pipeline"].GetStringValue())
		require.NotEmpty(t, byType["task.claimed"].GetTask())
		require.Equal(t, "w1", byType["task.claimed"].GetData().GetFields()["worker"].GetStringValue())
		require.Equal(t, "SUCCEEDED", byType["run.ended"].GetData().GetFields()["state"].GetStringValue())
		require.NotContains(t, byType["task.claimed"].GetData().GetFields(), "token", "who reads must not be able to report")
		require.NotContains(t, byType["task.claimed"].GetData().GetFields(), "claim")
	})
}
