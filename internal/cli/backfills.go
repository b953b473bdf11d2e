package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// newBackfills is the group of commands about backfills.
func newBackfills() *cobra.Command {
	cmd := group("backfill", "Run assets over many partitions",
		newBackfillCreate(),
		newBackfillList(),
		newShow(ofBackfill(spec{use: "show BACKFILL", short: "Show a backfill and its runs"}), func(ctx context.Context, s *session) (*servov1.Backfill, error) {
			return s.findBackfill(ctx, s.args[0])
		}, backfillText),
		newBackfillWatch(),
		newShow(ofBackfill(spec{
			use: "pause BACKFILL", short: "Pause a backfill", reason: true,
			long: "Pause a backfill: no further run starts. Started runs continue.",
		}), func(ctx context.Context, s *session) (*servov1.Backfill, error) {
			b, err := s.findBackfill(ctx, s.args[0])
			if err != nil {
				return nil, err
			}
			return s.client.Backfills().PauseBackfill(ctx, &servov1.PauseBackfillRequest{Tenant: s.Tenant, Workspace: b.GetWorkspace(), Backfill: b.GetId(), Reason: s.reason})
		}, backfillChanged),
		newShow(ofBackfill(spec{use: "resume BACKFILL", short: "Resume a paused backfill", reason: true}), func(ctx context.Context, s *session) (*servov1.Backfill, error) {
			b, err := s.findBackfill(ctx, s.args[0])
			if err != nil {
				return nil, err
			}
			return s.client.Backfills().ResumeBackfill(ctx, &servov1.ResumeBackfillRequest{Tenant: s.Tenant, Workspace: b.GetWorkspace(), Backfill: b.GetId(), Reason: s.reason})
		}, backfillChanged),
		newShow(ofBackfill(spec{use: "cancel BACKFILL", short: "Cancel a backfill and its runs", reason: true}), func(ctx context.Context, s *session) (*servov1.Backfill, error) {
			b, err := s.findBackfill(ctx, s.args[0])
			if err != nil {
				return nil, err
			}
			return s.client.Backfills().CancelBackfill(ctx, &servov1.CancelBackfillRequest{Tenant: s.Tenant, Workspace: b.GetWorkspace(), Backfill: b.GetId(), Reason: s.reason})
		}, backfillChanged),
		newBackfillRetry())
	cmd.Aliases = []string{"backfills"}
	return cmd
}

// ofBackfill completes a command about one backfill.
func ofBackfill(c spec) spec {
	c.tenant = true
	c.example = cmp.Or(c.example, fmt.Sprintf("  servo backfill %s latest", strings.Fields(c.use)[0]))
	return c
}

func newBackfillCreate() *cobra.Command {
	var (
		req             = &servov1.CreateBackfillRequest{}
		values          parameters
		missing, failed bool
		stale, dryRun   bool
		watch, newest   bool
		key             string
	)
	cmd := newCall(spec{
		use: "create [ASSET]", short: "Create a backfill",
		long: `Create a backfill: runs that cover many partitions of an asset, at most --chunk-size partitions in
each run and --max-runs runs at the same time. Runs of a backfill have a lower priority than all
other runs.

--partition selects a range (date=2026-01-01..2026-03-31) and values of other dimensions
(date=2026-01,region=eu); without it all completed partitions are selected. --missing leaves out
partitions that have succeeded, --failed selects those whose last task failed.

Partitions are resolved once, now. All runs use the deployment that is active now; with --follow
each run uses the one that is active when it starts. --dry-run shows the number of partitions and
runs and the expected duration, and creates nothing.`,
		example: `  servo backfill create silver/orders --partition date=2026-01-01..2026-03-31 --dry-run
  servo backfill create silver/orders --missing --watch
  servo backfill create --pipeline daily --partition date=2025-01..2025-12 --newest --chunk-size 31`,
		tenant: true, names: []nameSource{(*session).assetNames},
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringArrayVar(&req.Partitions, "partition", nil, "partitions as dimension=value or dimension=first..last; repeatable")
			cmd.Flags().StringVar(&req.Pipeline, "pipeline", "", "pipeline that each run executes (default: the asset alone)")
			addSelect(cmd, &req.Select)
			values.add(cmd)
			cmd.Flags().BoolVar(&missing, "missing", false, "select partitions that have never succeeded")
			cmd.Flags().BoolVar(&failed, "failed", false, "select partitions whose last task failed")
			cmd.Flags().BoolVar(&stale, "stale", false, "select stale partitions (refused: assets have no versioned outputs yet)")
			cmd.Flags().BoolVar(&newest, "newest", false, "cover the newest partitions first (default: the oldest)")
			addBackfillLimits(cmd, req)
			cmd.Flags().BoolVar(&req.Follow, "follow", false, "use the deployment that is active when a run starts")
			cmd.Flags().StringVar(&req.Note, "note", "", "note for people, recorded with the backfill")
			cmd.Flags().StringVar(&key, "key", "", "idempotency key: a repeated call returns the same backfill")
			cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the size and the expected duration, and create nothing")
			cmd.Flags().BoolVar(&watch, "watch", false, "watch until the backfill has ended; exit with 3 if it did not succeed")
			cmd.MarkFlagsMutuallyExclusive("missing", "failed", "stale")
		},
		check: func(s *session) error {
			if len(s.args) == 0 && req.GetPipeline() == "" && len(req.GetSelect()) == 0 {
				return usageFault(s.cmd, "nothing to run: name an ASSET, --pipeline or --select")
			}
			return nil
		},
	}, func(ctx context.Context, s *session) (err error) {
		req.Tenant, req.Workspace, req.Asset = s.Tenant, s.Workspace, cmp.Or(s.args...)
		req.Only, req.Order = onlyOf(missing, failed, stale), orderOf(newest)
		trigger := &servov1.TriggerRunRequest{Tenant: s.Tenant, Workspace: s.Workspace, Pipeline: req.GetPipeline()}
		if req.Parameters, err = values.ofServer(ctx, s, trigger); err != nil {
			return err
		}
		if dryRun {
			preview, err := s.client.Backfills().PreviewBackfill(ctx, req)
			if err != nil {
				return err
			}
			return s.show(preview, func(w io.Writer) { previewText(w, preview) })
		}
		if key != "" {
			ctx = client.WithIdempotencyKey(ctx, key)
		}
		made, err := s.client.Backfills().CreateBackfill(ctx, req)
		if err != nil {
			return err
		}
		if watch {
			return s.watchBackfill(ctx, made.GetWorkspace(), made.GetId())
		}
		return s.show(made, func(w io.Writer) {
			fmt.Fprintf(w, "backfill %s created: %s in %s\n", made.GetId(), count(int(made.GetTotal()), "partition"), count(int(made.GetRuns()), "run"))
			fmt.Fprintf(w, "watch it with: servo backfill watch %s%s\n", made.GetId(), s.again())
		})
	})
	cmd.Args = atMost(1)
	return cmd
}

// addBackfillLimits gives a command the limits of a backfill.
func addBackfillLimits(cmd *cobra.Command, req *servov1.CreateBackfillRequest) {
	cmd.Flags().Int32Var(&req.ChunkSize, "chunk-size", 0, "maximum number of partitions of one run (default 100)")
	cmd.Flags().Int32Var(&req.MaxConcurrentRuns, "max-runs", 0, "maximum number of runs at the same time (default 3)")
	cmd.Flags().BoolVar(&req.StopOnFailure, "stop-on-failure", false, "start no further run after the first failed partition")
	cmd.Flags().StringVar(&req.FailureThreshold, "failure-threshold", "", "failed partitions that are tolerated: a number, or a percentage (default 10%)")
}

func onlyOf(missing, failed, stale bool) servov1.CreateBackfillRequest_Only {
	switch {
	case missing:
		return servov1.CreateBackfillRequest_MISSING
	case failed:
		return servov1.CreateBackfillRequest_FAILED
	case stale:
		return servov1.CreateBackfillRequest_STALE
	}
	return servov1.CreateBackfillRequest_ONLY_UNSPECIFIED
}

func orderOf(newest bool) servov1.CreateBackfillRequest_Order {
	if newest {
		return servov1.CreateBackfillRequest_NEWEST
	}
	return servov1.CreateBackfillRequest_OLDEST
}

func previewText(w io.Writer, p *servov1.PreviewBackfillResponse) {
	var t table
	t.add("asset", clean(p.GetAsset()))
	t.add("partitions", fmt.Sprintf("%d, from %s to %s", p.GetPartitions(), clean(p.GetFirst()), clean(p.GetLast())))
	t.add("runs", fmt.Sprint(p.GetRuns()))
	t.add("tasks", fmt.Sprint(p.GetTasks()))
	estimate := short(p.GetWork().AsDuration()) + " of work, " + count(int(p.GetParallelTasks()), "task") + " at the same time"
	if p.GetUnknownAssets() > 0 {
		estimate += fmt.Sprintf("; %s without a past attempt, a second for each of their tasks", count(int(p.GetUnknownAssets()), "asset"))
	}
	t.add("estimate", estimate)
	t.add("expected end", "in about "+short(p.GetEta().AsDuration()))
	t.print(w)
}

func newBackfillList() *cobra.Command {
	var asset, state string
	return newList(spec{
		short: "List backfills, newest first", tenant: true, limit: "backfills",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&asset, "asset", "", "filter by asset")
			cmd.Flags().StringVar(&state, "state", "", "filter by state")
			completeFlag(cmd, "asset", (*session).assetNames)
		},
	}, "no backfills; create one with servo backfill create", func(ctx context.Context, s *session) ([]*servov1.Backfill, error) {
		req := &servov1.ListBackfillsRequest{Tenant: s.Tenant, Asset: asset}
		if s.cmd.Flags().Changed("workspace") {
			req.Workspace = s.Workspace
		}
		if state != "" {
			number, ok := servov1.Backfill_State_value[strings.ToUpper(state)]
			if !ok {
				return nil, usageFault(s.cmd, "unknown state "+clean(state)+": use pending, running, paused, succeeded, failed or cancelled")
			}
			req.States = append(req.States, servov1.Backfill_State(number))
		}
		return first(client.AllBackfills(ctx, s.client, req), s.limit)
	}, columns([]string{"BACKFILL", "STATE", "ASSET", "PROGRESS", "FAILED", "RUNS", "AGE"}, func(v view, b *servov1.Backfill) []string {
		return []string{
			b.GetId(), v.paint.state(b.GetState().String()), clean(b.GetAsset()), fmt.Sprintf("%d/%d", b.GetCompleted(), b.GetTotal()),
			fmt.Sprint(b.GetFailed()), fmt.Sprintf("%d/%d", b.GetStartedRuns(), b.GetRuns()), age(v.now, b.GetCreatedAt()),
		}
	}))
}

// findBackfill finds a backfill of any workspace by its id; latest is the newest one.
func (s *session) findBackfill(ctx context.Context, name string) (*servov1.Backfill, error) {
	if name == "latest" {
		answer, err := s.client.Backfills().ListBackfills(ctx, &servov1.ListBackfillsRequest{Tenant: s.Tenant, Workspace: s.Workspace, PageSize: 1})
		if err != nil {
			return nil, err
		}
		if len(answer.GetBackfills()) == 0 {
			return nil, usageFault(s.cmd, "there are no backfills; create one with servo backfill create")
		}
		return answer.GetBackfills()[0], nil
	}
	return s.client.Backfills().GetBackfill(ctx, &servov1.GetBackfillRequest{Tenant: s.Tenant, Workspace: s.Workspace, Backfill: name})
}

func newBackfillRetry() *cobra.Command {
	var failedOnly bool
	return newShow(ofBackfill(spec{
		use: "retry BACKFILL", short: "Retry the partitions that have not succeeded", reason: true,
		long: `Retry a backfill that has failed or was cancelled: a new round covers its partitions that have not
succeeded. With --failed-only it leaves out the partitions that were never started. Partitions that
succeeded are not repeated.`,
		example: "  servo backfill retry latest --failed-only",
		flags: func(cmd *cobra.Command) {
			cmd.Flags().BoolVar(&failedOnly, "failed-only", false, "leave out partitions that were never started")
		},
	}), func(ctx context.Context, s *session) (*servov1.Backfill, error) {
		b, err := s.findBackfill(ctx, s.args[0])
		if err != nil {
			return nil, err
		}
		return s.client.Backfills().RetryBackfill(ctx, &servov1.RetryBackfillRequest{
			Tenant: s.Tenant, Workspace: b.GetWorkspace(), Backfill: b.GetId(), FailedOnly: failedOnly, Reason: s.reason,
		})
	}, backfillChanged)
}

// backfillChanged prints a backfill after a change.
func backfillChanged(w io.Writer, s *session, b *servov1.Backfill) {
	fmt.Fprintf(w, "backfill %s is %s: %d of %s completed\n", b.GetId(), s.paint.state(b.GetState().String()), b.GetCompleted(), count(int(b.GetTotal()), "partition"))
	if n := b.GetOpenRuns(); n > 0 && b.GetState() != servov1.Backfill_RUNNING {
		fmt.Fprintf(w, "%s not ended yet\n", count(int(n), "run"))
	}
}

func backfillText(w io.Writer, s *session, b *servov1.Backfill) {
	now := time.Now()
	fmt.Fprintf(w, "%s  %s\n\n", b.GetId(), s.paint.state(b.GetState().String()))
	var t table
	t.add("asset", clean(b.GetAsset()))
	t.add("runs", clean(cmp.Or(b.GetPipeline(), strings.Join(b.GetSelect(), " "))))
	selection := clip(strings.Join(b.GetPartitions(), " "), 200)
	if b.GetOnly() != servov1.CreateBackfillRequest_ONLY_UNSPECIFIED {
		selection = strings.TrimSpace(selection + " only " + strings.ToLower(b.GetOnly().String()))
	}
	t.add("partitions", cmp.Or(selection, "all completed"))
	t.add("progress", backfillProgress(b))
	t.add("chunks", fmt.Sprintf("%d of %d started in round %d, %d running, at most %d at a time", b.GetStartedRuns(), b.GetRuns(), b.GetRound()+1, b.GetOpenRuns(), b.GetMaxConcurrentRuns()))
	t.add("deployment", cmp.Or(b.GetDeployment(), "the active one"))
	if b.GetWaitsFor() != "" {
		t.add("waits", clip(b.GetWaitsFor(), 200))
	}
	if b.GetReason() != "" {
		t.add("reason", clip(b.GetReason(), 200))
	}
	t.add("created", when(now, b.GetCreatedAt())+"  "+clean(b.GetCreatedBy()))
	if b.GetFinishedAt() != nil {
		t.add("finished", when(now, b.GetFinishedAt())+"  after "+elapsed(now, b.GetCreatedAt(), b.GetFinishedAt()))
	}
	t.print(w)
}

// backfillProgress is a bar with the counters.
func backfillProgress(b *servov1.Backfill) string {
	done := float32(0)
	if b.GetTotal() > 0 {
		done = float32(b.GetTotal()-b.GetPending()) / float32(b.GetTotal())
	}
	text := fmt.Sprintf("%s %d/%d completed", bar(done), b.GetCompleted(), b.GetTotal())
	if b.GetFailed() > 0 {
		text += fmt.Sprintf(", %d failed", b.GetFailed())
	}
	if b.GetSkipped() > 0 {
		text += fmt.Sprintf(", %d skipped", b.GetSkipped())
	}
	return text
}
