package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// seriesOfPage is how many series one answer has.
const seriesOfPage = 100

func newAssetsPartitions() *cobra.Command {
	var (
		partitions []string
		status     string
	)
	return newShow(spec{
		use: "partitions ASSET", short: "List the partitions of an asset with their status", tenant: true, names: []nameSource{(*session).assetNames},
		long: `List the partitions of an asset with their status, as ranges: succeeded, failed (by the last task),
running and missing. Without --partition all completed partitions are listed.`,
		example: `  servo assets partitions silver/orders
  servo assets partitions silver/orders --partition date=2026-01 --status missing`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringArrayVar(&partitions, "partition", nil, "partitions as dimension=value or dimension=first..last; repeatable")
			cmd.Flags().StringVar(&status, "status", "", "filter by status: missing, succeeded, failed or running")
		},
		check: func(s *session) error {
			if _, ok := servov1.PartitionStatusRange_Status_value[strings.ToUpper(status)]; status != "" && !ok {
				return usageFault(s.cmd, "unknown status "+clean(status)+": use missing, succeeded, failed or running")
			}
			return nil
		},
	}, func(ctx context.Context, s *session) (*servov1.ListAssetPartitionsResponse, error) {
		return s.assetPartitions(ctx, partitions, strings.ToUpper(status))
	}, assetPartitionsText)
}

// assetPartitions reads all pages, with the ranges of one status, or of all.
func (s *session) assetPartitions(ctx context.Context, partitions []string, status string) (*servov1.ListAssetPartitionsResponse, error) {
	req := &servov1.ListAssetPartitionsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Asset: s.args[0], Partitions: partitions, PageSize: seriesOfPage}
	var whole *servov1.ListAssetPartitionsResponse
	for {
		answer, err := s.client.Assets().ListAssetPartitions(ctx, req)
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = answer
		} else {
			whole.Series = append(whole.Series, answer.GetSeries()...)
		}
		if req.PageToken = answer.GetNextPageToken(); req.GetPageToken() == "" {
			break
		}
	}
	whole.NextPageToken = ""
	if status == "" {
		return whole, nil
	}
	var kept []*servov1.PartitionSeries
	for _, one := range whole.GetSeries() {
		var ranges []*servov1.PartitionStatusRange
		for _, r := range one.GetRanges() {
			if r.GetStatus().String() == status {
				ranges = append(ranges, r)
			}
		}
		if one.Ranges = ranges; len(ranges) > 0 {
			kept = append(kept, one)
		}
	}
	whole.Series = kept
	return whole, nil
}

func assetPartitionsText(w io.Writer, s *session, a *servov1.ListAssetPartitionsResponse) {
	fmt.Fprintf(w, "%s: %d partitions, %d succeeded, %d failed, %d running, %d missing\n\n",
		clean(a.GetDimensions()), a.GetTotal(), a.GetSucceeded(), a.GetFailed(), a.GetRunning(), a.GetMissing())
	t := table{rows: [][]string{{"SERIES", "FIRST", "LAST", "PARTITIONS", "STATUS"}}}
	for _, series := range a.GetSeries() {
		for _, r := range series.GetRanges() {
			t.add(orDash(clean(series.GetSeries())), clean(r.GetFirst()), clean(r.GetLast()), fmt.Sprint(r.GetCount()), s.paint.state(r.GetStatus().String()))
		}
		if series.GetTruncated() {
			t.add(orDash(clean(series.GetSeries())), "…", "", "", "")
		}
	}
	t.print(w)
}
