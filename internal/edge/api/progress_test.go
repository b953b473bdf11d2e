package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/store"
)

func progressItem(l *servov1.Lease, p *servov1.Progress) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Progress{Progress: p}}
}

func TestProgress(t *testing.T) {
	t.Parallel()

	t.Run("what is reported is kept with its attempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.trigger(t, "single").GetId()
		l := b.one(t)
		sent := &servov1.Progress{
			Phase: "LOAD", Fraction: 0.5, RecordsExtracted: 1, RecordsTransformed: 2, RecordsLoaded: 3, Bytes: 4, Eta: timestamppb.New(time.Unix(2e9, 0)),
		}
		require.Nil(t, b.report(t, progressItem(l, sent))[0].GetError())
		b.report(t, failing(l, "NETWORK_ERROR"))
		task := b.taskOf(t, in, "s/one")
		require.Nil(t, task.GetProgress(), "no worker runs it now")
		kept := task.GetAttempts()[0].GetProgress()
		sent.StageSince = kept.GetStageSince()
		require.True(t, proto.Equal(sent, kept), "%v", kept)
	})

	t.Run("a stage ends with the next, the last one with its attempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.trigger(t, "single").GetId()
		l := b.one(t)
		for _, stage := range []string{"page 1", "page 1", "page 2", "page 3"} {
			b.report(t, progressItem(l, &servov1.Progress{Phase: "LOAD", Stage: stage}))
		}
		last := b.taskOf(t, in, "s/one").GetAttempts()[0].GetStages()
		require.Len(t, last, 3)
		require.Nil(t, last[2].GetEndedAt(), "it continues")

		b.report(t, progressItem(l, &servov1.Progress{Phase: "LOAD", Stage: "the end"}), &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Complete{Complete: &servov1.Complete{}}})
		attempt := b.taskOf(t, in, "s/one").GetAttempts()[0]
		var names []string
		for i, stage := range attempt.GetStages() {
			names = append(names, fmt.Sprint(stage.GetPhase(), " ", stage.GetStage(), " ", stage.GetCount()))
			if i > 0 {
				require.Equal(t, attempt.GetStages()[i-1].GetEndedAt().AsTime(), stage.GetStartedAt().AsTime())
			}
		}
		require.Equal(t, []string{"LOAD page 1 1", "LOAD page 2 1", "LOAD page 3 1", "LOAD the end 1"}, names, "what comes with the end belongs to the attempt")
		require.Equal(t, attempt.GetEndedAt().AsTime(), attempt.GetStages()[3].GetEndedAt().AsTime())
	})

	t.Run("a heartbeat without progress keeps the previous one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		in := b.trigger(t, "single").GetId()
		l := b.one(t)
		for _, p := range []*servov1.Progress{{Stage: "first"}, nil, {Stage: "second"}, nil} {
			answer, err := b.workers.Heartbeat(t.Context(), &servov1.HeartbeatRequest{WorkerId: "w1", Leases: []*servov1.HeartbeatItem{{Lease: l.GetLease(), Progress: p}}})
			require.NoError(t, err)
			require.True(t, answer.GetLeases()[0].GetHeld())
		}
		require.Equal(t, "second", b.taskOf(t, in, "s/one").GetProgress().GetStage())
	})
}

func TestETA(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	reported := func(p store.Progress) *store.ProgressView {
		return &store.ProgressView{Progress: p, UpdatedAt: noon.Add(time.Minute)}
	}
	for name, c := range map[string]struct {
		task      store.TaskView
		want      time.Time
		estimated bool
	}{
		"its worker knows best": {
			store.TaskView{State: run.Running, StartedAt: noon, Usual: time.Hour, Progress: reported(store.Progress{Fraction: 0.5, ETA: noon.Add(7 * time.Minute)})},
			noon.Add(7 * time.Minute), false,
		},
		"it continues at the same rate": {
			store.TaskView{State: run.Running, StartedAt: noon, Usual: time.Hour, Progress: reported(store.Progress{Fraction: 0.25})}, noon.Add(4 * time.Minute), true,
		},
		"it takes what its asset takes":               {store.TaskView{State: run.Running, StartedAt: noon, Usual: time.Hour}, noon.Add(time.Hour), true},
		"the first percent is no basis":               {store.TaskView{State: run.Running, StartedAt: noon, Usual: time.Hour, Progress: reported(store.Progress{Fraction: 0.001})}, noon.Add(time.Hour), true},
		"nothing is known":                            {store.TaskView{State: run.Running, StartedAt: noon, Progress: reported(store.Progress{Stage: "x"})}, time.Time{}, false},
		"a year is as good as nothing":                {store.TaskView{State: run.Running, StartedAt: noon.AddDate(-1, 0, 0), Progress: reported(store.Progress{Fraction: 0.02})}, time.Time{}, false},
		"what has not started has no end":             {store.TaskView{State: run.Dispatched, Usual: time.Hour}, time.Time{}, false},
		"a clock that went back makes no end in time": {store.TaskView{State: run.Running, StartedAt: noon.Add(time.Hour), Progress: reported(store.Progress{Fraction: 0.5})}, time.Time{}, false},
	} {
		eta, estimated := api.ETA(c.task)
		require.Equal(t, c.want, eta, name)
		require.Equal(t, c.estimated, estimated, name)
	}
}
