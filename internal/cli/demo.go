package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	"go.arco.dev/servo/examples/hello"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/loop"
)

// How busy the example is. It should be worth watching and cost next to nothing: the first
// runs come quickly, later ones now and then.
const (
	demoTenant     = "demo"
	demoPipeline   = "hello"
	demoEvery      = 5 * time.Second
	demoFirst      = 60 // runs that come so quickly; after them only each demoThin-th does
	demoThin       = 12
	demoUnfinished = 3 // runs at once
)

// demo triggers the example's pipeline now and then.
type demo struct {
	client *client.Client
	loop   *loop.Loop
	rounds int
}

// startDemo makes the tenant, deploys the example, triggers it once and goes on doing so.
func startDemo(ctx context.Context, c *client.Client, log *slog.Logger) (*demo, error) {
	d := &demo{client: c}
	_, err := c.Tenants().CreateTenant(ctx, &servov1.CreateTenantRequest{Name: demoTenant})
	if err != nil && !client.Is(err, client.AlreadyExists) {
		return nil, err
	}
	manifest, err := manifestMessage(hello.Manifest, "servo.yaml")
	if err != nil {
		return nil, err
	}
	if _, err := c.Deployments().Deploy(ctx, &servov1.DeployRequest{Tenant: demoTenant, Manifest: manifest}); err != nil {
		return nil, err
	}
	if err := d.trigger(ctx); err != nil {
		return nil, err
	}
	d.loop = loop.Start(loop.Config{Name: "demo", Every: demoEvery, RunOnce: d.round, Logger: log}) //nolint:contextcheck // until stop
	return d, nil
}

func (d *demo) stop() { d.loop.Stop() }

// round triggers a run unless enough are going on, or it is not yet time for another.
func (d *demo) round(ctx context.Context) (more bool, err error) {
	d.rounds++
	if d.rounds == 1 || d.rounds > demoFirst && d.rounds%demoThin != 0 {
		return false, nil // the first run was triggered at the start
	}
	going, err := d.client.Runs().ListRuns(ctx, &servov1.ListRunsRequest{
		Tenant: demoTenant, Pipeline: demoPipeline, PageSize: demoUnfinished,
		State: []servov1.Run_State{servov1.Run_PENDING, servov1.Run_RUNNING, servov1.Run_CANCELLING},
	})
	if err != nil || len(going.GetRuns()) >= demoUnfinished {
		return false, err
	}
	return false, d.trigger(ctx)
}

// trigger runs the example for another day than the time before.
func (d *demo) trigger(ctx context.Context) error {
	day := time.Now().UTC().AddDate(0, 0, -d.rounds).Format(time.DateOnly)
	parameters, err := structpb.NewStruct(map[string]any{"day": day})
	if err != nil {
		return err
	}
	_, err = d.client.Runs().TriggerRun(ctx, &servov1.TriggerRunRequest{
		Tenant: demoTenant, Pipeline: demoPipeline, Parameters: parameters, TriggeredBy: "servo dev",
	})
	return err
}

// welcome says where everything is, and what to type next: as it works here.
func (d *dev) welcome(stdout io.Writer) error {
	var text strings.Builder
	text.WriteString("Servo runs on this machine. Ctrl-C ends it.\n\n")
	table := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "  REST, metrics, health\thttp://%s\n", d.server.HTTPAddr())
	fmt.Fprintf(table, "  gRPC\t%s\n", d.server.GRPCAddr())
	fmt.Fprintf(table, "  database\t%s\n", d.postgres.URL(""))
	fmt.Fprintf(table, "  kept in\t%s\n", d.home.dir)
	_ = table.Flush() // into memory
	text.WriteString("\nIn another terminal:\n\n")
	program, server := programName(os.Args[0]), ""
	if d.server.GRPCAddr() != defaultServer {
		server = " --server " + d.server.GRPCAddr()
	}
	next := []string{"tenants create acme", "deploy -f servo.yaml --tenant acme", "worker"}
	if d.demo != nil {
		next = []string{
			"runs list --tenant " + demoTenant,
			"runs watch " + latest + " --tenant " + demoTenant,
			"runs trigger " + demoPipeline + " --param network=bad --wait --tenant " + demoTenant,
			"configs list --tenant globex",
		}
	}
	for _, command := range next {
		fmt.Fprintf(&text, "  %s %s%s\n", program, command, server)
	}
	text.WriteString("\n")
	_, err := io.WriteString(stdout, text.String())
	return wrote(err)
}

// programName is how this program was called, so that what is printed can be typed.
func programName(called string) string {
	if called == "" {
		return "servo"
	}
	if !strings.ContainsRune(called, filepath.Separator) {
		return called
	}
	if strings.ContainsAny(called, " \t\"'$\\") {
		return "'" + strings.ReplaceAll(called, "'", `'\''`) + "'"
	}
	return called
}
