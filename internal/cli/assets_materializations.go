package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// versionsOfPage is how many versions one answer has.
const versionsOfPage = 100

// newAssetsMaterializations lists the versions of an asset, or shows one.
func newAssetsMaterializations() *cobra.Command {
	var (
		partition string
		most      int
	)
	return newShow(spec{
		use: "materializations ASSET[@VERSION]", short: "List the versions of an asset, or show one", tenant: true, names: []nameSource{(*session).assetNames},
		long: `List the versions of an asset that declares an output, the newest first. With a version, show its
schema, checks, inputs and the versions that were made from it.`,
		example: `  servo assets materializations silver/orders
  servo assets materializations silver/orders --partition '{"date":"2026-01-01"}'
  servo assets materializations silver/orders@4711`,
		flags: func(cmd *cobra.Command) {
			cmd.Flags().StringVar(&partition, "partition", "", "filter by the partition or range of the version")
			cmd.Flags().IntVar(&most, "limit", versionsOfPage, "maximum number of versions")
		},
	}, func(ctx context.Context, s *session) (*servov1.ListMaterializationsResponse, error) {
		asset, version, err := s.assetVersion(s.args[0])
		if err != nil {
			return nil, err
		}
		if version != 0 {
			one, err := s.client.Materializations().GetMaterialization(ctx, &servov1.GetMaterializationRequest{Tenant: s.Tenant, Workspace: s.Workspace, Asset: asset, Version: version})
			return &servov1.ListMaterializationsResponse{Materializations: []*servov1.Materialization{one}}, err
		}
		return s.materializations(ctx, asset, partition, most)
	}, materializationsText)
}

// assetVersion parses ASSET or ASSET@VERSION; the version is 0 if there is none.
func (s *session) assetVersion(text string) (asset string, version int64, err error) {
	asset, number, found := strings.Cut(text, "@")
	if !found {
		return asset, 0, nil
	}
	if version, err = strconv.ParseInt(number, 10, 64); err != nil || version <= 0 {
		return "", 0, usageFault(s.cmd, fmt.Sprintf("%s is not a version: use ASSET@NUMBER, such as silver/orders@4711", clean(number)))
	}
	return asset, version, nil
}

// materializations reads pages of versions.
func (s *session) materializations(ctx context.Context, asset, partition string, most int) (*servov1.ListMaterializationsResponse, error) {
	req := &servov1.ListMaterializationsRequest{Tenant: s.Tenant, Workspace: s.Workspace, Asset: asset}
	if partition != "" {
		req.Partition = &partition
	}
	whole := &servov1.ListMaterializationsResponse{}
	for {
		req.PageSize = int32(min(most-len(whole.GetMaterializations()), versionsOfPage)) //nolint:gosec // a page size
		answer, err := s.client.Materializations().ListMaterializations(ctx, req)
		if err != nil {
			return nil, err
		}
		whole.Materializations = append(whole.Materializations, answer.GetMaterializations()...)
		if req.PageToken = answer.GetNextPageToken(); req.GetPageToken() == "" || len(whole.GetMaterializations()) >= most {
			return whole, nil
		}
	}
}

func materializationsText(w io.Writer, s *session, a *servov1.ListMaterializationsResponse) {
	t := table{rows: [][]string{{"VERSION", "PARTITION", "STATE", "CURRENT", "ROWS", "BYTES", "GATE", "RECORDED", "RUN"}}}
	for _, m := range a.GetMaterializations() {
		current := "-"
		if m.GetCurrent() {
			current = "yes"
		}
		t.add(fmt.Sprint(m.GetVersion()), orDash(clean(m.GetPartition())), s.paint.state(m.GetState().String()), current, fmt.Sprint(m.GetRows()), fmt.Sprint(m.GetBytes()),
			orDash(clean(m.GetGate())), when(time.Now(), m.GetRecordedAt()), orDash(clean(m.GetRun())))
	}
	t.print(w)
	if _, version, _ := s.assetVersion(s.args[0]); version != 0 && len(a.GetMaterializations()) == 1 {
		materializationDetail(w, a.GetMaterializations()[0])
	}
}

// materializationDetail prints the checks and the lineage of a version.
func materializationDetail(w io.Writer, m *servov1.Materialization) {
	fmt.Fprintf(w, "\npath    %s\ndigest  %s\n", orDash(clean(m.GetPath())), orDash(clean(m.GetDigest())))
	if len(m.GetChecks()) > 0 {
		fmt.Fprintln(w)
		t := table{rows: [][]string{{"CHECK", "SEVERITY", "RESULT", "ACTUAL", "EXPECTED"}}}
		for _, c := range m.GetChecks() {
			result := "passed"
			switch {
			case c.GetSkipped():
				result = "skipped"
			case !c.GetPassed():
				result = "failed"
			}
			t.add(clean(c.GetName()), clean(c.GetSeverity()), result, orDash(clip(c.GetActual()+c.GetError(), 60)), orDash(clip(c.GetExpected(), 60)))
		}
		t.print(w)
	}
	for _, part := range []struct {
		title    string
		versions []*servov1.MaterializationVersion
	}{{"made from", m.GetInputs()}, {"used by", m.GetMade()}} {
		for _, v := range part.versions {
			fmt.Fprintf(w, "%s %s@%d\n", part.title, clean(v.GetAsset()), v.GetVersion())
		}
	}
}
