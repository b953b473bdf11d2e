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

// newPools is the group of commands about pools.
func newPools() *cobra.Command {
	return group("pools", "Manage pools, the queues of tasks with their workers",
		newPoolsCreate(),
		newList(spec{short: "List pools with configuration, tasks or workers"}, "no pools configured or in use",
			func(ctx context.Context, s *session) ([]*servov1.Pool, error) {
				answer, err := s.client.Pools().ListPools(ctx, &servov1.ListPoolsRequest{})
				return answer.GetPools(), err
			},
			columns([]string{"POOL", "KIND", "QUEUED", "LEASED", "WORKERS", "LIMIT", "URL"}, func(_ view, p *servov1.Pool) []string {
				return []string{
					clean(p.GetName()), strings.ToLower(p.GetKind().String()), fmt.Sprint(p.GetQueued()), fmt.Sprint(p.GetLeased()),
					fmt.Sprint(p.GetWorkers()), limitText(p.GetMaxConcurrency()), orDash(p.GetUrl()),
				}
			})),
		newShow(spec{use: "get NAME", short: "Show a pool's limits, queue and endpoint health", example: "  servo pools get reports"},
			func(ctx context.Context, s *session) (*servov1.Pool, error) {
				return s.client.Pools().GetPool(ctx, &servov1.GetPoolRequest{Pool: s.args[0]})
			}, poolText),
		newPoolsUpdate(),
		newShow(spec{use: "delete NAME", short: "Delete a pool's configuration (queued tasks are kept)", version: "pool"},
			func(ctx context.Context, s *session) (*servov1.DeletePoolResponse, error) {
				return s.client.Pools().DeletePool(ctx, &servov1.DeletePoolRequest{Pool: s.args[0], Version: s.version})
			},
			func(w io.Writer, s *session, _ *servov1.DeletePoolResponse) {
				fmt.Fprintf(w, "configuration of pool %s deleted; it is a pull pool without limits\n", clean(s.args[0]))
			}))
}

// poolFlags are the settings of a pool.
type poolFlags struct {
	url, owner     string
	tenants        []string
	maxConcurrency int32
	rate           float32
	timeout        time.Duration
}

func (f *poolFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "", "endpoint URL of a push pool")
	flags.Int32Var(&f.maxConcurrency, "max-concurrency", -1, "maximum number of queued and leased tasks (-1: no limit)")
	flags.Float32Var(&f.rate, "rate", 0, "maximum calls per second to a push pool, by all servers (0: no limit)")
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "timeout of one call to a push pool")
	flags.StringVar(&f.owner, "owner", "", "tenant that owns the pool and alone may use it (default: the platform)")
	flags.StringSliceVar(&f.tenants, "tenants", nil, "tenants that may use a pool of the platform (default: all)")
}

func newPoolsCreate() *cobra.Command {
	var (
		f    poolFlags
		kind string
	)
	return newShow(spec{
		use: "create NAME", short: "Create a pool",
		long: `Create a pool. A pool without configuration is a pull pool without limits: its workers
claim, and all tenants may use it. To a push pool Servo sends each task, as a signed envelope,
to a URL.

An owned pool accepts tasks of its owner only. A pool of the platform accepts tasks of all
tenants, or of those that --tenants names.

Workers of a push pool verify envelopes with keys. The keys are printed once, here and when
keys are rotated. Give them to the workers; they are not shown again.`,
		example: `  servo pools create reports --kind push --url https://reports.example.com/servo --max-concurrency 20
  servo pools create gpu --max-concurrency 4 --owner acme
  servo pools create batch --tenants acme,globex`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&kind, "kind", "pull", "kind: pull (workers claim) or push (Servo calls a URL)")
			f.add(cmd)
		},
	}, func(ctx context.Context, s *session) (*servov1.CreatePoolResponse, error) {
		number, err := poolKind(kind)
		if err != nil {
			return nil, err
		}
		return s.client.Pools().CreatePool(ctx, &servov1.CreatePoolRequest{
			Name: s.args[0], Kind: number, Url: f.url, MaxConcurrency: &f.maxConcurrency, RatePerSecond: f.rate,
			Timeout: durationpb.New(f.timeout), Owner: f.owner, Tenants: f.tenants,
		})
	}, func(w io.Writer, _ *session, made *servov1.CreatePoolResponse) {
		fmt.Fprintf(w, "pool %q created\n", made.GetPool().GetName())
		workerKeys(w, made.GetWorkerKeys())
	})
}

func poolKind(text string) (servov1.Pool_Kind, error) {
	number, known := servov1.Pool_Kind_value[strings.ToUpper(text)]
	if !known || number == 0 {
		return 0, fault.New(fault.InvalidArgument, fmt.Sprintf("unknown kind of pool %q%s", text, suggest.DidYouMean(text, []string{"pull", "push"})),
			fault.Field("--kind"), fault.Remedy("use pull or push"))
	}
	return servov1.Pool_Kind(number), nil
}

// workerKeys prints keys that are shown once.
func workerKeys(w io.Writer, keys []*servov1.WorkerKey) {
	if len(keys) == 0 {
		return
	}
	fmt.Fprintln(w, "give the workers these keys; they are not shown again:")
	for _, k := range keys {
		fmt.Fprintf(w, "  %s  %s\n", clean(k.GetPool()), shownOnce(k.GetKey()))
	}
}

func limitText(limit int32) string {
	if limit < 0 {
		return "-"
	}
	return fmt.Sprint(limit)
}

func poolText(w io.Writer, _ *session, p *servov1.Pool) {
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
	line("workers", fmt.Sprintf("%d, with capacity %d", p.GetWorkers(), p.GetSlots()))
	if p.GetConfigured() {
		line("version", fmt.Sprint(p.GetVersion()))
	}
	if p.GetKind() != servov1.Pool_PUSH {
		return
	}
	line("url", clean(p.GetUrl()))
	if p.GetRatePerSecond() > 0 {
		line("rate", strconv.FormatFloat(float64(p.GetRatePerSecond()), 'g', -1, 32)+" per second")
	}
	line("timeout", p.GetTimeout().AsDuration().String())
	if b := p.GetBreaker(); b != nil {
		text := b.GetState()
		if b.GetRetryAt() != nil {
			text += ", next call at " + b.GetRetryAt().AsTime().UTC().Format(time.TimeOnly)
		}
		line("breaker", text)
		if b.GetLastError() != "" {
			line("last error", clean(b.GetLastError()))
		}
	}
}

// poolUsers names the tenants that may use a pool.
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
	var f poolFlags
	return newShow(spec{
		use: "update NAME", short: "Update a pool", version: "pool", flags: f.add,
		long: `Update a pool. Settings without a flag are kept.

When a tenant may no longer use the pool, its leased tasks continue. Its other tasks wait, and
servo why names the reason. No task is lost.`,
		example: `  servo pools update reports --max-concurrency 50
  servo pools update gpu --tenants acme,globex
  servo pools update gpu --tenants ""`,
	}, func(ctx context.Context, s *session) (*servov1.Pool, error) {
		req := &servov1.UpdatePoolRequest{Pool: s.args[0], Version: s.version}
		changed := s.cmd.Flags().Changed
		if changed("url") {
			req.Url = &f.url
		}
		if changed("max-concurrency") {
			req.MaxConcurrency = &f.maxConcurrency
		}
		if changed("rate") {
			req.RatePerSecond = &f.rate
		}
		if changed("timeout") {
			req.Timeout = durationpb.New(f.timeout)
		}
		if changed("owner") {
			req.Owner = &f.owner
		}
		if changed("tenants") {
			req.Tenants = &servov1.PoolTenants{Names: f.tenants}
		}
		return s.client.Pools().UpdatePool(ctx, req)
	}, func(w io.Writer, _ *session, p *servov1.Pool) {
		fmt.Fprintf(w, "pool %s updated to version %d\n", clean(p.GetName()), p.GetVersion())
	})
}
