package cloudcost_test

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/cloudcost"
)

func params() cloudcost.Params {
	return cloudcost.Params{Provider: "AWS", Account: "1234", Days: 3, Until: "2026-01-31", Credentials: "valid"}
}

// setup gives assets with a directory of their own, on the first of February.
func setup(t *testing.T) (a *cloudcost.Assets, dir string) {
	t.Helper()
	dir = t.TempDir()
	now := func() time.Time { return time.Date(2026, 2, 1, 0, 30, 0, 0, time.UTC) }
	return cloudcost.New(cloudcost.Options{Dir: dir, Now: now}), dir
}

// task is a second attempt, which no cloud limits.
func task(results map[string]any) *servo.TestTask {
	return servo.NewTestTask(servo.TestInput{Tenant: "acme", Attempt: 2, Results: results})
}

func codeOf(t require.TestingT, err error) string {
	var failure *servo.Error
	require.True(t, errors.As(err, &failure), "%v", err)
	return failure.Code
}

// extract does what cost/extract and the tasks that it adds do.
func extract(t require.TestingT, a *cloudcost.Assets, p cloudcost.Params) (first cloudcost.Extract, services map[string]any) {
	ctx, asking := context.Background(), task(nil)
	first, err := a.CostExtract(ctx, asking.Task, p)
	require.NoError(t, err)
	require.Len(t, asking.FanOuts(), 1)
	require.True(t, asking.FanOuts()[0].Barrier)
	services = map[string]any{}
	for _, part := range asking.FanOuts()[0].Tasks {
		require.Equal(t, "cost/extract_service", part.Asset)
		in := servo.TestInput{Tenant: "acme", Attempt: 2, Partition: part.Partition}
		services[part.Partition], err = a.CostExtractService(ctx, servo.NewTestTask(in).Task, p)
		require.NoError(t, err)
	}
	return first, services
}

// transforming is the task of cost/transform after those extracts.
func transforming(first cloudcost.Extract, services map[string]any) *servo.TestTask {
	return servo.NewTestTask(servo.TestInput{
		Tenant: "acme", Results: map[string]any{"cost/extract": first}, Mapped: map[string]map[string]any{"cost/extract_service": services},
	})
}

func TestCostBilling(t *testing.T) {
	t.Parallel()

	t.Run("the charges of the cloud equal the statement at every step", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		rapid.Check(t, func(t *rapid.T) {
			p := anyParams(t)
			var charged int64
			teams := map[string]int64{}
			cloud := cloudcost.Cloud{Provider: p.Provider, Account: p.Account}
			for _, service := range cloud.Services() {
				for _, day := range daysOf(t, p) {
					for _, charge := range cloud.Charges(service, day) {
						charged += charge.Micros
						teams[cmp.Or(charge.Team, "untagged")] += charge.Micros
					}
				}
			}

			first, services := extract(t, a, p)
			var extracted int64
			for _, s := range services {
				extracted += s.(cloudcost.ServiceCharges).Micros
			}
			require.Equal(t, charged, extracted)

			costs, err := a.CostTransform(context.Background(), transforming(first, services).Task, p)
			require.NoError(t, err)
			require.Equal(t, charged, costs.Micros)

			statement, err := a.CostLoad(context.Background(), task(map[string]any{"cost/transform": costs}).Task, p)
			require.NoError(t, err)
			require.Equal(t, charged, statement.Micros)
			require.Equal(t, charged, sum(statement.Services))
			require.Equal(t, teams, statement.Teams)
			require.Len(t, statement.Services, len(cloud.Services()))
			require.Equal(t, p.Until, statement.Until)
		})
	})

	t.Run("there is a task for each service of the cloud, up to yesterday by default", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		p := params()
		p.Until, p.Provider = "", "GCP"
		asking := task(nil)
		_, err := a.CostExtract(t.Context(), asking.Task, p)
		require.NoError(t, err)
		var parts []string
		for _, part := range asking.FanOuts()[0].Tasks {
			parts = append(parts, part.Partition)
		}
		require.Equal(t, []string{"2026-01-31/BigQuery", "2026-01-31/CloudRun", "2026-01-31/CloudStorage", "2026-01-31/ComputeEngine"}, parts)
	})

	t.Run("progress is reported day by day", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		extracting := servo.NewTestTask(servo.TestInput{Attempt: 2, Partition: "2026-01-31/S3"})
		found, err := a.CostExtractService(t.Context(), extracting.Task, params())
		require.NoError(t, err)
		reports := extracting.Reported()
		require.Len(t, reports, 3)
		require.Equal(t, "2026-01-29", reports[0].Stage)
		require.InDelta(t, 1.0, reports[2].Fraction, 0)
		require.EqualValues(t, found.File.Rows, reports[2].RecordsExtracted)
		require.Contains(t, extracting.Logged(), "service=S3")
	})

	t.Run("a lost service and a lost charge are noticed", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		first, services := extract(t, a, params())
		s3 := services["2026-01-31/S3"].(cloudcost.ServiceCharges)
		delete(services, "2026-01-31/S3")
		_, err := a.CostTransform(t.Context(), transforming(first, services).Task, params())
		require.Equal(t, servo.CheckFailed, codeOf(t, err))

		s3.Micros++
		services["2026-01-31/S3"] = s3
		_, err = a.CostTransform(t.Context(), transforming(first, services).Task, params())
		require.Equal(t, servo.CheckFailed, codeOf(t, err))
	})

	t.Run("a statement that differs from what was transformed is not written", func(t *testing.T) {
		t.Parallel()
		a, dir := setup(t)
		first, services := extract(t, a, params())
		costs, err := a.CostTransform(t.Context(), transforming(first, services).Task, params())
		require.NoError(t, err)
		costs.Micros++
		_, err = a.CostLoad(t.Context(), task(map[string]any{"cost/transform": costs}).Task, params())
		require.Equal(t, servo.CheckFailed, codeOf(t, err))
		require.NoFileExists(t, filepath.Join(dir, "acme", "cost", "AWS-1234", "statement.jsonl"))
	})
}

func TestRateLimit(t *testing.T) {
	t.Parallel()
	a, _ := setup(t)
	limited := 0
	for i := range 200 {
		in := servo.TestInput{Run: strconv.Itoa(i), Partition: "2026-01-31/EC2"}
		_, err := a.CostExtractService(t.Context(), servo.NewTestTask(in).Task, params())
		if err == nil {
			continue
		}
		limited++
		require.Equal(t, servo.RateLimited, codeOf(t, err), "a code that is tried again")
		in.Attempt = 2
		_, err = a.CostExtractService(t.Context(), servo.NewTestTask(in).Task, params())
		require.NoError(t, err, "the second attempt is not limited")
	}
	require.Positive(t, limited, "some runs meet the limit")
	require.Less(t, limited, 100, "most do not")
}

func TestSecurityAudit(t *testing.T) {
	t.Parallel()

	t.Run("every change is a finding or harmless, from the cloud to the report", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		rapid.Check(t, func(t *rapid.T) {
			p, ctx := anyParams(t), context.Background()
			changed, public := 0, 0
			cloud := cloudcost.Cloud{Provider: p.Provider, Account: p.Account}
			for _, region := range cloud.Regions() {
				for _, day := range daysOf(t, p) {
					for _, change := range cloud.Changes(region, day) {
						changed++
						public += strings.Count(change.Kind, "bucket-made-public")
					}
				}
			}

			log, err := a.SecurityExtract(ctx, task(nil).Task, p)
			require.NoError(t, err)
			require.Equal(t, changed, log.File.Rows)
			findings, err := a.SecurityTransform(ctx, task(map[string]any{"security/extract": log}).Task, p)
			require.NoError(t, err)
			require.Equal(t, changed, findings.Harmless+findings.File.Rows)
			loading := task(map[string]any{"security/transform": findings})
			report, err := a.SecurityLoad(ctx, loading.Task, p)
			require.NoError(t, err)
			require.Equal(t, changed, report.Changes)
			require.Equal(t, public, report.Findings[cloudcost.Critical])
			require.Equal(t, findings.File.Rows, report.Findings[cloudcost.Critical]+report.Findings[cloudcost.High]+report.Findings[cloudcost.Medium])
			if public > 0 {
				require.Equal(t, cloudcost.Critical, report.First[0].Severity, "the worst comes first")
				require.Contains(t, loading.Logged(), "critical findings need a review")
			}
		})
	})

	t.Run("a lost finding is noticed", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		log, err := a.SecurityExtract(t.Context(), task(nil).Task, params())
		require.NoError(t, err)
		findings, err := a.SecurityTransform(t.Context(), task(map[string]any{"security/extract": log}).Task, params())
		require.NoError(t, err)
		findings.Changes++
		_, err = a.SecurityLoad(t.Context(), task(map[string]any{"security/transform": findings}).Task, params())
		require.Equal(t, servo.CheckFailed, codeOf(t, err))
	})

	t.Run("a cancelled task ends with the reason", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(servo.ErrCancelled)
		p := params()
		p.LatencyMS = 10_000
		_, err := a.SecurityExtract(ctx, task(nil).Task, p)
		require.ErrorIs(t, err, servo.ErrCancelled)
	})
}

func TestParams(t *testing.T) {
	t.Parallel()
	a, _ := setup(t)

	t.Run("invalid parameters are a final failure", func(t *testing.T) {
		t.Parallel()
		for name, spoil := range map[string]func(*cloudcost.Params){
			"provider":   func(p *cloudcost.Params) { p.Provider = "DEC" },
			"account":    func(p *cloudcost.Params) { p.Account = "../other" },
			"no days":    func(p *cloudcost.Params) { p.Days = 0 },
			"many days":  func(p *cloudcost.Params) { p.Days = 32 },
			"until":      func(p *cloudcost.Params) { p.Until = "yesterday" },
			"latency_ms": func(p *cloudcost.Params) { p.LatencyMS = -1 },
		} {
			p := params()
			spoil(&p)
			_, err := a.CostExtract(t.Context(), task(nil).Task, p)
			require.Equal(t, servo.InvalidConfiguration, codeOf(t, err), name)
			_, err = a.SecurityExtract(t.Context(), task(nil).Task, p)
			require.Equal(t, servo.InvalidConfiguration, codeOf(t, err), name)
		}
	})

	t.Run("an expired key fails both pipelines, with a suggested action", func(t *testing.T) {
		t.Parallel()
		p := params()
		p.Credentials = "expired"
		_, err := a.CostExtract(t.Context(), task(nil).Task, p)
		require.Equal(t, servo.AuthenticationFailed, codeOf(t, err))
		_, err = a.SecurityExtract(t.Context(), task(nil).Task, p)
		require.Equal(t, servo.AuthenticationFailed, codeOf(t, err))
	})
}

func TestFiles(t *testing.T) {
	t.Parallel()

	t.Run("runs replace the same files: the directory does not grow", func(t *testing.T) {
		t.Parallel()
		a, dir := setup(t)
		for _, until := range []string{"2026-01-30", "2026-01-31"} {
			p := params()
			p.Until = until
			extract(t, a, p)
			found, err := fs.Glob(os.DirFS(filepath.Join(dir, "acme", "cost", "AWS-1234")), "*")
			require.NoError(t, err)
			require.Equal(t, []string{
				"extract-CloudFront.jsonl", "extract-EC2.jsonl", "extract-Lambda.jsonl", "extract-RDS.jsonl", "extract-S3.jsonl",
			}, found)
		}
	})

	t.Run("tenants with the same account do not share files", func(t *testing.T) {
		t.Parallel()
		a, dir := setup(t)
		for _, tenant := range []string{"acme", "globex"} {
			_, err := a.SecurityExtract(t.Context(), servo.NewTestTask(servo.TestInput{Tenant: tenant}).Task, params())
			require.NoError(t, err)
			require.FileExists(t, filepath.Join(dir, tenant, "security", "AWS-1234", "extract.jsonl"))
		}
	})

	t.Run("a file that another run has replaced, or that is gone, is not mistaken for the one that was written", func(t *testing.T) {
		t.Parallel()
		a, dir := setup(t)
		log, err := a.SecurityExtract(t.Context(), task(nil).Task, params())
		require.NoError(t, err)
		later := params()
		later.Until = "2026-02-01"
		_, err = a.SecurityExtract(t.Context(), task(nil).Task, later)
		require.NoError(t, err)
		_, err = a.SecurityTransform(t.Context(), task(map[string]any{"security/extract": log}).Task, params())
		require.Equal(t, servo.DataCorruption, codeOf(t, err))

		require.NoError(t, os.RemoveAll(filepath.Join(dir, "acme")))
		_, err = a.SecurityTransform(t.Context(), task(map[string]any{"security/extract": log}).Task, params())
		require.Equal(t, servo.MissingInput, codeOf(t, err))
	})
}

func TestCloud(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := anyParams(t)
		cloud := cloudcost.Cloud{Provider: p.Provider, Account: p.Account}
		service := rapid.SampledFrom(cloud.Services()).Draw(t, "service")
		region := rapid.SampledFrom(cloud.Regions()).Draw(t, "region")
		require.Equal(t, cloud.Charges(service, p.Until), cloud.Charges(service, p.Until), "the same day has the same charges")
		require.Equal(t, cloud.Changes(region, p.Until), cloud.Changes(region, p.Until))
		other := cloudcost.Cloud{Provider: p.Provider, Account: p.Account + "x"}
		require.NotEqual(t, cloud.Charges(service, p.Until), other.Charges(service, p.Until), "another account has others")
		for _, charge := range cloud.Charges(service, p.Until) {
			require.Positive(t, charge.Micros)
			require.Contains(t, cloud.Regions(), charge.Region)
		}
	})
}

// anyParams are parameters that make sense.
func anyParams(t *rapid.T) cloudcost.Params {
	until := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rapid.IntRange(0, 1500).Draw(t, "day"))
	return cloudcost.Params{
		Provider: rapid.SampledFrom(cloudcost.Providers()).Draw(t, "provider"),
		Account:  rapid.StringMatching(`[a-z0-9][a-z0-9-]{0,20}`).Draw(t, "account"),
		Days:     rapid.IntRange(1, 31).Draw(t, "days"),
		Until:    until.Format(time.DateOnly),
	}
}

// daysOf counts back from the last day.
func daysOf(t require.TestingT, p cloudcost.Params) (days []string) {
	last, err := time.Parse(time.DateOnly, p.Until)
	require.NoError(t, err)
	for i := range p.Days {
		days = append(days, last.AddDate(0, 0, -i).Format(time.DateOnly))
	}
	return days
}

func sum(amounts map[string]int64) (total int64) {
	for _, amount := range amounts {
		total += amount
	}
	return total
}
