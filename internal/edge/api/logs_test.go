package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func logs(l *servov1.Lease, seq int64, text string) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Log{Log: &servov1.LogChunk{Seq: seq, Text: text, At: timestamppb.Now()}}}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, b *bundle, l *servov1.Lease, req *servov1.ListTaskLogsRequest) *servov1.ListTaskLogsResponse {
		t.Helper()
		req.Tenant, req.Run, req.Task = "acme", l.GetRun(), l.GetTask()
		answer, err := b.tasks.ListTaskLogs(t.Context(), req)
		require.NoError(t, err)
		return answer
	}
	texts := func(answer *servov1.ListTaskLogsResponse) []string {
		var all []string
		for _, c := range answer.GetChunks() {
			all = append(all, fmt.Sprint(c.GetSeq(), c.GetText()))
		}
		return all
	}

	t.Run("logs that come with a completion are kept, whatever their order in the call", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		for _, answer := range b.report(t, logs(l, 1, "one"), complete(l, nil), logs(l, 2, "two")) {
			require.Nil(t, answer.GetError())
		}
		all := read(t, b, l, &servov1.ListTaskLogsRequest{})
		require.Equal(t, []string{"1one", "2two"}, texts(all))
		require.Equal(t, int32(1), all.GetAttempt())
		require.Empty(t, all.GetNextPageToken(), "the attempt is over and everything was read")
		require.Zero(t, all.GetDroppedBytes())
		require.Equal(t, "STALE", b.report(t, logs(l, 3, "late"))[0].GetError().GetCode())
	})

	t.Run("a reader follows an attempt to its end, page by page", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		empty := read(t, b, l, &servov1.ListTaskLogsRequest{PageSize: 2})
		require.Empty(t, empty.GetChunks())
		require.NotEmpty(t, empty.GetNextPageToken(), "more may come")
		for i := range int64(5) {
			b.report(t, logs(l, i+1, "x"))
		}
		b.report(t, logs(l, 5, "a repeat"))
		var seen []string
		token := empty.GetNextPageToken()
		for range 3 {
			answer := read(t, b, l, &servov1.ListTaskLogsRequest{PageSize: 2, PageToken: token})
			seen, token = append(seen, texts(answer)...), answer.GetNextPageToken()
			require.NotEmpty(t, token)
		}
		require.Equal(t, []string{"1x", "2x", "3x", "4x", "5x"}, seen)
		b.report(t, logs(l, 6, "last"), complete(l, nil))
		rest := read(t, b, l, &servov1.ListTaskLogsRequest{PageSize: 2, PageToken: token})
		require.Equal(t, []string{"6last"}, texts(rest))
		require.Empty(t, rest.GetNextPageToken())
	})

	t.Run("each attempt has its own, and a reader stays with the one it began with", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		first := b.one(t)
		b.report(t, logs(first, 1, "first"))
		began := read(t, b, first, &servov1.ListTaskLogsRequest{})
		b.report(t, &servov1.ReportItem{Lease: first.GetLease(), Action: &servov1.ReportItem_Yield{Yield: &servov1.Yield{}}})
		second := b.one(t)
		b.report(t, logs(second, 1, "second"))

		rest := read(t, b, first, &servov1.ListTaskLogsRequest{PageToken: began.GetNextPageToken()})
		require.Empty(t, rest.GetChunks())
		require.Empty(t, rest.GetNextPageToken(), "that attempt is over")
		require.Equal(t, int32(1), rest.GetAttempt())
		require.Equal(t, []string{"1second"}, texts(read(t, b, first, &servov1.ListTaskLogsRequest{})))
		require.Equal(t, []string{"1first"}, texts(read(t, b, first, &servov1.ListTaskLogsRequest{Attempt: 1})))
	})

	t.Run("what is beyond the rate of an attempt is dropped, and counted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		for i := range int64(24) {
			require.Nil(t, b.report(t, logs(l, i+1, strings.Repeat("x", 65536)))[0].GetError())
		}
		all := read(t, b, l, &servov1.ListTaskLogsRequest{PageSize: 100})
		require.Positive(t, all.GetDroppedBytes())
		require.Equal(t, int64(1), all.GetChunks()[0].GetSeq())
		require.Less(t, all.GetChunks()[len(all.GetChunks())-1].GetSeq(), int64(24))
	})

	t.Run("a task that ended before any attempt has nothing, and nothing will come", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		task := b.taskOf(t, run, "s/one").GetId()
		_, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		none, err := b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: task})
		require.NoError(t, err)
		require.Zero(t, none.GetAttempt())
		require.Empty(t, none.GetNextPageToken())
	})

	t.Run("invalid requests are refused with their field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		task := b.taskOf(t, run, "s/one").GetId()
		_, err := b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: uuid.NewString()})
		requireRefused(t, err, codes.NotFound, "task")
		_, err = b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: task, Attempt: 1})
		requireRefused(t, err, codes.NotFound, "attempt")
		_, err = b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: task, PageToken: "x"})
		requireRefused(t, err, codes.InvalidArgument, "page_token")
		none, err := b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: task})
		require.NoError(t, err)
		require.Zero(t, none.GetAttempt())
		require.NotEmpty(t, none.GetNextPageToken(), "an attempt may come")

		l := b.one(t)
		answers := b.report(t, logs(l, 1, "a\x00b"), logs(l, 1, ""), logs(l, 1, "fine"))
		require.Equal(t, "INVALID_ARGUMENT text", answers[0].GetError().GetCode()+" "+answers[0].GetError().GetField())
		require.Equal(t, "INVALID_ARGUMENT text", answers[1].GetError().GetCode()+" "+answers[1].GetError().GetField())
		require.Nil(t, answers[2].GetError())
		after, err := b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: task, PageToken: none.GetNextPageToken()})
		require.NoError(t, err)
		require.Equal(t, []string{"1fine"}, texts(after), "who waited for the first attempt finds it")
	})
}
