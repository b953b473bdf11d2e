package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// newPools looks after pools.
func newPools() *cobra.Command {
	return group("pools", "Configure and list pools, the queues of tasks with their workers",
		newPoolsCreate(), newPoolsList(), newPoolsGet(), newPoolsUpdate(), newPoolsDelete())
}

// poolFlags are what can be said about a pool.
type poolFlags struct {
	url, owner     string
	tenants        []string
	maxConcurrency int32
	rate           float32
	timeout        time.Duration
}

func addPool(cmd *cobra.Command, f *poolFlags) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "of a push pool: where tasks are sent")
	flags.Int32Var(&f.maxConcurrency, "max-concurrency", -1, "tasks that may be queued or out at once (-1: no limit)")
	flags.Float32Var(&f.rate, "rate", 0, "of a push pool: tasks sent in a second, by all servers together (0: no limit)")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "of a push pool: how long one call may take")
	flags.StringVar(&f.owner, "owner", "", "tenant that owns the pool and alone may use it (none: the platform)")
	flags.StringSliceVar(&f.tenants, "tenants", nil, "tenants that may use a pool of the platform (none: all)")
}

func newPoolsCreate() *cobra.Command {
	var (
		r    remote
		f    poolFlags
		kind string
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a pool",
		Long: `Create a pool. A pool without configuration is a pull pool without limits: its workers
claim, and all tenants may use it. To a push pool Servo sends each task, as a signed envelope,
to a URL.

An owned pool accepts tasks of its owner only. A pool of the platform accepts tasks of all
tenants, or of those that --tenants names.

The keys that the workers of a push pool believe envelopes by are printed once, here and
when keys are rotated. Give them to the workers; they are not shown again.`,
		Example: `  servo pools create reports --kind push --url https://reports.example.com/servo --max-concurrency 20
  servo pools create gpu --max-concurrency 4 --owner acme
  servo pools create batch --tenants acme,globex`,
		Args: exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			number, err := poolKind(kind)
			if err != nil {
				return err
			}
			made, err := s.client.Pools().CreatePool(ctx, &servov1.CreatePoolRequest{
				Name: args[0], Kind: number, Url: f.url, MaxConcurrency: &f.maxConcurrency, RatePerSecond: f.rate,
				Timeout: durationpb.New(f.timeout), Owner: f.owner, Tenants: f.tenants,
			})
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "pool %q created\n", made.GetPool().GetName())
				workerKeys(w, made.GetWorkerKeys())
			})
		}),
	}
	cmd.Flags().StringVar(&kind, "kind", "pull", "pull (workers claim) or push (Servo calls a URL)")
	addPool(cmd, &f)
	addRemote(cmd, &r)
	return cmd
}

func poolKind(text string) (servov1.Pool_Kind, error) {
	number, known := servov1.Pool_Kind_value[strings.ToUpper(text)]
	if !known || number == 0 {
		return 0, fault.New(fault.InvalidArgument, fmt.Sprintf("%q is no kind of pool%s", text, suggest.DidYouMean(text, []string{"pull", "push"})),
			fault.Field("--kind"), fault.Remedy("use pull or push"))
	}
	return servov1.Pool_Kind(number), nil
}

// workerKeys prints the keys that are shown once.
func workerKeys(w io.Writer, keys []*servov1.WorkerKey) {
	if len(keys) == 0 {
		return
	}
	fmt.Fprintln(w, "give the workers these keys; they are not shown again:")
	for _, k := range keys {
		fmt.Fprintf(w, "  %s  %s\n", clean(k.GetPool()), shownOnce(k.GetKey()))
	}
}

func newPoolsList() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the pools that are configured, have tasks or have workers",
		Args:  exactly(0),
		RunE: run(func(ctx context.Context, s *session, _ []string) error {
			answer, err := s.client.Pools().ListPools(ctx, &servov1.ListPoolsRequest{})
			if err != nil {
				return err
			}
			return showAll(s, answer.GetPools(), "no pool is configured or in use", func(w io.Writer) {
				var t table
				t.add("POOL", "KIND", "QUEUED", "LEASED", "WORKERS", "LIMIT", "URL")
				for _, p := range answer.GetPools() {
					t.add(clean(p.GetName()), strings.ToLower(p.GetKind().String()), fmt.Sprint(p.GetQueued()), fmt.Sprint(p.GetLeased()),
						fmt.Sprint(p.GetWorkers()), limitText(p.GetMaxConcurrency()), orDash(clean(p.GetUrl())))
				}
				t.print(w)
			})
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func limitText(limit int32) string {
	if limit < 0 {
		return "-"
	}
	return fmt.Sprint(limit)
}

func newPoolsGet() *cobra.Command {
	var r remote
	cmd := &cobra.Command{
		Use:     "get NAME",
		Short:   "Show a pool: what it may, what is in it, and how its URL answers",
		Example: "  servo pools get reports",
		Args:    exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			p, err := s.client.Pools().GetPool(ctx, &servov1.GetPoolRequest{Pool: args[0]})
			if err != nil {
				return err
			}
			return s.show(p, func(w io.Writer) { poolText(w, p) })
		}),
	}
	addRemote(cmd, &r)
	return cmd
}

func poolText(w io.Writer, p *servov1.Pool) {
	line := func(name, value string) { fmt.Fprintf(w, "%s\t%s\n", name, value) }
	line("pool", clean(p.GetName()))
	kind := strings.ToLower(p.GetKind().String())
	if !p.GetConfigured() {
		kind += ", not configured"
	}
	line("kind", kind)
	if p.GetOwner() != "" {
		line("owner", clean(p.GetOwner()))
	}
	line("used by", clean(poolUsers(p)))
	line("limit", limitText(p.GetMaxConcurrency()))
	line("queued", fmt.Sprint(p.GetQueued()))
	line("leased", fmt.Sprint(p.GetLeased()))
	line("workers", fmt.Sprintf("%d, with %d slots", p.GetWorkers(), p.GetSlots()))
	if p.GetConfigured() {
		line("version", fmt.Sprint(p.GetVersion()))
	}
	if p.GetKind() != servov1.Pool_PUSH {
		return
	}
	line("url", clean(p.GetUrl()))
	if p.GetRatePerSecond() > 0 {
		line("rate", strconv.FormatFloat(float64(p.GetRatePerSecond()), 'g', -1, 32)+" a second")
	}
	line("timeout", p.GetTimeout().AsDuration().String())
	if b := p.GetBreaker(); b != nil {
		text := b.GetState()
		if b.GetRetryAt() != nil {
			text += ", tried again at " + b.GetRetryAt().AsTime().UTC().Format(time.TimeOnly)
		}
		line("breaker", text)
		if b.GetLastError() != "" {
			line("last error", clean(b.GetLastError()))
		}
	}
}

// poolUsers says which tenants may use a pool.
func poolUsers(p *servov1.Pool) string {
	switch {
	case p.GetOwner() != "":
		return p.GetOwner()
	case len(p.GetTenants()) > 0:
		return strings.Join(p.GetTenants(), ", ")
	}
	return "all tenants"
}

func newPoolsUpdate() *cobra.Command {
	var (
		r       remote
		f       poolFlags
		version int32
	)
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Update a pool",
		Long: `Update a pool. Settings that no flag names stay as they are.

Tenants that may no longer use the pool keep what their workers hold; their other tasks
wait, and servo why names the reason. They are never lost.`,
		Example: `  servo pools update reports --max-concurrency 50
  servo pools update gpu --tenants acme,globex
  servo pools update gpu --tenants ""`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return run(func(ctx context.Context, s *session, args []string) error {
				req := &servov1.UpdatePoolRequest{Pool: args[0], Version: version}
				said := cmd.Flags().Changed
				if said("url") {
					req.Url = &f.url
				}
				if said("max-concurrency") {
					req.MaxConcurrency = &f.maxConcurrency
				}
				if said("rate") {
					req.RatePerSecond = &f.rate
				}
				if said("timeout") {
					req.Timeout = durationpb.New(f.timeout)
				}
				if said("owner") {
					req.Owner = &f.owner
				}
				if said("tenants") {
					req.Tenants = &servov1.PoolTenants{Names: f.tenants}
				}
				p, err := s.client.Pools().UpdatePool(ctx, req)
				if err != nil {
					return err
				}
				return s.show(p, func(w io.Writer) { fmt.Fprintf(w, "pool %s is at version %d\n", clean(p.GetName()), p.GetVersion()) })
			})(cmd, args)
		},
	}
	cmd.Flags().Int32Var(&version, "version", 0, "only if the pool is still at this version (0: whatever is there)")
	addPool(cmd, &f)
	addRemote(cmd, &r)
	return cmd
}

func newPoolsDelete() *cobra.Command {
	var (
		r       remote
		version int32
	)
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Forget what was configured; tasks stay in the queue, for workers to claim",
		Args:  exactly(1),
		RunE: run(func(ctx context.Context, s *session, args []string) error {
			gone, err := s.client.Pools().DeletePool(ctx, &servov1.DeletePoolRequest{Pool: args[0], Version: version})
			if err != nil {
				return err
			}
			return s.show(gone, func(w io.Writer) {
				fmt.Fprintf(w, "pool %s is configured no more: a pull pool without limits\n", clean(args[0]))
			})
		}),
	}
	cmd.Flags().Int32Var(&version, "version", 0, "only if the pool is still at this version (0: whatever is there)")
	addRemote(cmd, &r)
	return cmd
}
