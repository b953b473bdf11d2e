package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// PagesOptions are the amount of history below the pages.
type PagesOptions struct {
	Executable string // this binary: server and worker are processes of it
	Runs       int    // of one task each, all of which have ended
	Tenants    int    // that they belong to
	Looks      int    // at each page
	// Progress is called with the result of each page.
	Progress func(PageResult) error
}

// PageResult is what one page took.
type PageResult struct {
	Page  string  `json:"page"`
	P50   float64 `json:"p50_ms"`
	Worst float64 `json:"worst_ms"`
	Bytes int     `json:"bytes"`
}

// PagesFigures are the durations of the pages and the amount of history.
type PagesFigures struct {
	Runs   int64        `json:"runs"`
	Events int64        `json:"events"`
	Pages  []PageResult `json:"pages"`
}

// configName is of a config that every tenant has, for the pages that show one.
const configName = "nightly"

// RunPages fills an installation with ended runs, through the API and a worker, and then requests
// every page.
func RunPages(ctx context.Context, o PagesOptions) (PagesFigures, error) {
	var figures PagesFigures
	f, err := startFleet(ctx, TaskOptions{Executable: o.Executable})
	defer f.close()
	if err != nil {
		return figures, err
	}
	worker, err := f.worker(ctx, 1000)
	if err != nil {
		return figures, err
	}
	for i := range o.Tenants {
		if err := f.fill(ctx, tenantName(i), o.Runs/o.Tenants); err != nil {
			return figures, err
		}
	}
	if err := f.drained(ctx, worker); err != nil {
		return figures, err
	}
	if err := f.counted(ctx, &figures); err != nil {
		return figures, err
	}
	addresses, err := f.pages(ctx)
	if err != nil {
		return figures, err
	}
	for _, at := range addresses {
		result, err := look(ctx, f.web, at, o.Looks)
		if err != nil {
			return figures, err
		}
		figures.Pages = append(figures.Pages, result)
		if o.Progress == nil {
			continue
		}
		if err := o.Progress(result); err != nil {
			return figures, err
		}
	}
	return figures, nil
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%d", i) }

// fill gives a tenant its runs, and a config.
func (f *fleet) fill(ctx context.Context, tenant string, runs int) error {
	if err := f.deploy(ctx, tenant); err != nil {
		return err
	}
	_, err := f.client.Configs().CreateConfig(ctx, &servov1.CreateConfigRequest{
		Tenant: tenant, Name: configName, Spec: &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 3 * * *"}, Timezone: "Europe/Berlin"},
	})
	if err != nil {
		return err
	}
	return f.trigger(ctx, tenant, "single", runs)
}

// counted returns the amount of history, after ANALYZE.
func (f *fleet) counted(ctx context.Context, into *PagesFigures) error {
	if _, err := f.admin.Exec(ctx, `VACUUM ANALYZE`); err != nil {
		return err
	}
	return f.admin.QueryRow(ctx, `SELECT (SELECT count(*) FROM servo.runs), (SELECT count(*) FROM servo.run_events)`).Scan(&into.Runs, &into.Events)
}

// pages are the addresses of every page.
func (f *fleet) pages(ctx context.Context) ([]string, error) {
	tenant := tenantName(0)
	runs, err := f.client.Runs().ListRuns(ctx, &servov1.ListRunsRequest{Tenant: tenant, PageSize: 1})
	if err != nil {
		return nil, err
	}
	run := runs.GetRuns()[0].GetId()
	tasks, err := f.client.Tasks().ListTasks(ctx, &servov1.ListTasksRequest{Tenant: tenant, Run: run, PageSize: 1})
	if err != nil {
		return nil, err
	}
	task := tasks.GetTasks()[0]
	of := "/ui/tenants/" + tenant
	return []string{
		"/ui/", "/ui/?tenant=" + tenant,
		"/ui/runs", "/ui/runs?state=FAILED", "/ui/runs?state=SUCCEEDED&since=24h", "/ui/runs?tenant=" + tenant, "/ui/runs?tenant=" + tenant + "&state=FAILED",
		"/ui/runs?tenant=" + tenant + "&config=" + configName,
		of + "/runs/" + run, of + "/runs/" + run + "?tab=gantt", of + "/runs/" + run + "?tab=tasks", of + "/runs/" + run + "?tab=events",
		of + "/runs/" + run + "/tasks/" + task.GetId(),
		"/ui/configs", "/ui/configs?tenant=" + tenant, of + "/configs/" + configName, of + "/configs/" + configName + "/edit",
		"/ui/assets?tenant=" + tenant, of + "/assets/" + task.GetAsset(),
		"/ui/fairness", "/ui/workers", "/ui/locks?tenant=" + tenant, "/ui/simulator?tenant=" + tenant, "/ui/alerts",
		"/ui/tenants", of, "/ui/events", "/ui/events?tenant=" + tenant, "/ui/admin", "/ui/search?q=" + url.QueryEscape(run), "/ui/search?q=tenant",
	}, nil
}

// look asks for a page some times, one after the other.
func look(ctx context.Context, base, at string, times int) (PageResult, error) {
	result := PageResult{Page: at}
	var took []time.Duration
	for range times {
		began := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+at, http.NoBody)
		if err != nil {
			return result, err
		}
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			return result, err
		}
		n, err := io.Copy(io.Discard, answer.Body)
		if err := answer.Body.Close(); err != nil {
			return result, err
		}
		if err != nil {
			return result, err
		}
		if answer.StatusCode != http.StatusOK {
			return result, fmt.Errorf("the page %s answers %s", at, answer.Status)
		}
		result.Bytes = int(n)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	result.P50, result.Worst = took[len(took)/2].Seconds()*1000, took[len(took)-1].Seconds()*1000
	return result, nil
}
