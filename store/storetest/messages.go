package storetest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/helixagents/helix/session"
)

func messageCases() []testCase {
	return []testCase{
		{"append", "AppendMessages adds messages in order, byte for byte, and raises the version", 0, appendMessages},
		{"truncate", "TruncateMessages keeps the first messages and raises the version", 0, truncateMessages},
		{"invalid", "an invalid message is refused together with the whole list", 0, appendInvalid},
		{"id-twice", "an id that is already in the transcript is refused together with the whole list, until a rewind drops it", 0, messageIDTwice},
		{"missing", "reading messages of a session that does not exist is not found", 0, messagesMissing},
		{"pages", "pages follow each other by cursor and by offset", 0, messagePages},
		{"page-sizes", "a page has 50 items by default, at most 200, and a total only on request", 0, messagePageSizes},
		{"page-invalid", "an invalid cursor or offset is refused", 0, messagePageInvalid},
		{"page-cursor", "a cursor determines where a page begins; an offset beside it is ignored", 0, messagePageCursor},
		{"page-beyond", "a page beyond the end is empty, however far, and contains nothing of other sessions", 0, pageBeyond},
		{"page-grows", "a cursor stays valid while messages are added", 0, messagePageGrows},
		{"page-bytes", "a page ends before the message that would exceed MaxBytes, and has at least one", 0, messagePageBytes},
		{"page-bytes-large", "a page of large messages is read without the others", 0, messagePageBytesLarge},
		{"many", "a long transcript is read back whole and in order", 0, manyMessages},
	}
}

func appendMessages(t *bed) {
	t.create("a")
	want := oddMessages()
	out, err := session.AppendMessages(t.Context(), t.store(), "a", want[:1])
	t.ok(err, "append")
	equal(t, "version", out.Version, 2)
	equal(t, "message count", out.MessageCount, 1)
	out, err = session.AppendMessages(t.Context(), t.store(), "a", want[1:])
	t.ok(err, "append")
	equal(t, "version", out.Version, 3)
	equal(t, "message count", out.MessageCount, len(want))
	equal(t, "version in the document", t.load("a").Version, 3)
	t.messagesAre("a", "u1", "m1", "r1", "s1")
	t.sameMessages(want)
	page, err := t.store().Messages(t.Context(), "a", session.PageRequest{})
	t.ok(err, "Messages")
	for i := range want {
		if !page.Items[i].Equal(&want[i]) {
			t.Fatalf("message %d of the page: got %s, want %s", i, show(&page.Items[i]), show(&want[i]))
		}
	}
}

// numbered adds n messages m0, m1, … to a session.
func (t *bed) numbered(id string, n int) {
	t.Helper()
	t.create(id)
	messages := make([]session.Message, n)
	for i := range messages {
		messages[i] = user(fmt.Sprintf("m%d", i), fmt.Sprintf("text %d", i))
	}
	_, err := session.AppendMessages(t.Context(), t.store(), id, messages)
	t.ok(err, "append")
}

func messageIDTwice(t *bed) {
	t.numbered("a", 3)
	for _, messages := range [][]session.Message{
		{user("new", "new"), user("m1", "again")},
		{user("new", "new"), user("new", "again")},
	} {
		before := t.load("a").Version
		_, err := session.AppendMessages(t.Context(), t.store(), "a", messages)
		t.refused(err, session.ErrInvalid, "append")
		equal(t, "version", t.load("a").Version, before)
		t.messagesAre("a", "m0", "m1", "m2")
	}
	_, err := session.TruncateMessages(t.Context(), t.store(), "a", 1)
	t.ok(err, "truncate")
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("m1", "again")})
	t.ok(err, "append the dropped message")
	t.messagesAre("a", "m0", "m1")
}

func truncateMessages(t *bed) {
	t.numbered("a", 4)
	out, err := session.TruncateMessages(t.Context(), t.store(), "a", 2)
	t.ok(err, "truncate")
	equal(t, "version", out.Version, 3)
	equal(t, "message count", out.MessageCount, 2)
	t.messagesAre("a", "m0", "m1")
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("n2", "x")})
	t.ok(err, "append")
	t.messagesAre("a", "m0", "m1", "n2")
	_, err = session.TruncateMessages(t.Context(), t.store(), "a", 0)
	t.ok(err, "truncate to nothing")
	t.messagesAre("a")
	t.unchanged("a", func() {
		for _, keep := range []int{-1, 1} {
			_, err = session.TruncateMessages(t.Context(), t.store(), "a", keep)
			t.refused(err, session.ErrInvalid, fmt.Sprintf("truncate an empty transcript to %d messages", keep))
		}
	})
}

func appendInvalid(t *bed) {
	t.numbered("a", 1)
	for what, message := range map[string]session.Message{
		"no role":        {ID: "x", Parts: []session.Part{session.Text("x")}},
		"no content":     {ID: "x", Role: session.RoleUser},
		"an empty text":  {ID: "x", Role: session.RoleUser, Parts: []session.Part{session.Text("")}},
		"a stray result": {ID: "x", Role: session.RoleUser, Parts: []session.Part{{Kind: session.PartToolResult, CallID: "c"}}},
		"broken JSON":    {ID: "x", Role: session.RoleTool, Parts: []session.Part{{Kind: session.PartToolResult, CallID: "c", Output: raw(`{`)}}},
	} {
		t.unchanged("a", func() {
			_, err := session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("fine", "fine"), message})
			t.refused(err, session.ErrInvalid, "append of a message with "+what)
		})
	}
}

func messagePageCursor(t *bed) {
	t.numbered("a", 10)
	first, err := t.store().Messages(t.Context(), "a", session.PageRequest{Limit: 2, Offset: 2})
	t.ok(err, "Messages")
	equal(t, "offset", first.Offset, 2)
	for _, offset := range []int{0, 2, 7} {
		page, err := t.store().Messages(t.Context(), "a", session.PageRequest{Limit: 2, Offset: offset, Cursor: first.Next})
		t.ok(err, "Messages")
		equal(t, "first message of the next page", page.Items[0].ID, "m4")
		equal(t, "offset of the next page", page.Offset, 4)
	}
	r := t.start("a", "run-1")
	for i := range 5 {
		r.commit(step(i+1, fmt.Sprintf("cp%d", i+1)))
	}
	points, err := t.store().Checkpoints(t.Context(), "a", session.PageRequest{Limit: 2})
	t.ok(err, "Checkpoints")
	points, err = t.store().Checkpoints(t.Context(), "a", session.PageRequest{Limit: 2, Offset: 1, Cursor: points.Next})
	t.ok(err, "Checkpoints")
	equal(t, "first checkpoint of the next page", points.Items[0].ID, "cp3")
	equal(t, "offset of the next page", points.Offset, 0)
}

func pageBeyond(t *bed) {
	ctx := t.Context()
	t.numbered("before", 2)
	t.numbered("a", 2)
	t.numbered("after", 2)
	t.of("other").numbered("others", 2)
	for _, id := range []string{"before", "a", "after"} {
		t.start(id, "run-of-"+id)
	}
	t.of("other").start("others", "run-of-others")
	far := []int{3, 1 << 31, 1<<32 - 3, 1 << 32, 3 << 32, math.MaxInt - 1, math.MaxInt}
	for _, offset := range far {
		for _, request := range []session.PageRequest{
			{Offset: offset},
			{Cursor: session.Position{N: int64(offset)}.Cursor()},
			{Offset: offset, Cursor: session.Position{N: int64(offset)}.Cursor()},
		} {
			messages, err := t.store().Messages(ctx, "a", request)
			t.ok(err, "Messages")
			equal(t, fmt.Sprintf("messages from %d on", offset), len(messages.Items), 0)
			equal(t, "offset", messages.Offset, 2)
			runs, err := t.store().Runs(ctx, "a", request)
			t.ok(err, "Runs")
			equal(t, fmt.Sprintf("runs from %d on", offset), len(runs.Items), 0)
			equal(t, "offset", runs.Offset, 1)
		}
		points, err := t.store().Checkpoints(ctx, "a", session.PageRequest{Offset: offset})
		t.ok(err, "Checkpoints")
		equal(t, "checkpoints", len(points.Items), 0)
		sessions, err := t.store().List(ctx, session.Query{PageRequest: session.PageRequest{Offset: offset}})
		t.ok(err, "List")
		equal(t, "sessions", len(sessions.Items), 0)
	}
	for _, n := range []int64{-1, math.MinInt64} {
		_, err := t.store().Messages(ctx, "a", session.PageRequest{Cursor: session.Position{N: n}.Cursor()})
		t.refused(err, session.ErrInvalid, "a cursor of no listing")
		_, err = t.store().Runs(ctx, "a", session.PageRequest{Cursor: session.Position{N: n}.Cursor()})
		t.refused(err, session.ErrInvalid, "a cursor of no listing")
	}
}

func messagesMissing(t *bed) {
	_, err := t.store().Messages(t.Context(), "nobody", session.PageRequest{})
	t.refused(err, session.ErrNotFound, "Messages")
	_, err = t.store().AllMessages(t.Context(), "nobody")
	t.refused(err, session.ErrNotFound, "AllMessages")
	_, err = t.store().MessagesFrom(t.Context(), "nobody", 2)
	t.refused(err, session.ErrNotFound, "MessagesFrom")
	_, err = session.MessageCount(t.Context(), t.store(), "nobody")
	t.refused(err, session.ErrNotFound, "MessageCount")
}

// pages follows cursors to the end and returns the ids of the items.
func pages[V any](t *bed, limit int, get func(session.PageRequest) (session.Page[V], error), id func(V) string) []string {
	t.Helper()
	var ids []string
	request := session.PageRequest{Limit: limit}
	for range 1000 {
		page, err := get(request)
		t.ok(err, "page")
		if len(page.Items) > limit {
			t.Fatalf("a page of %d has %d items", limit, len(page.Items))
		}
		for _, item := range page.Items {
			ids = append(ids, id(item))
		}
		if page.HasMore != (page.Next != "") {
			t.Fatalf("has more is %v, the next cursor is %q", page.HasMore, page.Next)
		}
		if !page.HasMore {
			return ids
		}
		request.Cursor = page.Next
	}
	t.Fatalf("the pages do not end: %d items so far", len(ids))
	return nil
}

func messagePages(t *bed) {
	t.numbered("a", 7)
	want := t.texts("a")
	get := func(p session.PageRequest) (session.Page[session.Message], error) {
		return t.store().Messages(t.Context(), "a", p)
	}
	for _, limit := range []int{1, 2, 3, 6, 7, 8} {
		got := pages(t, limit, get, func(m session.Message) string { return m.ID })
		equal(t, fmt.Sprintf("pages of %d", limit), got, want)
	}
	page, err := get(session.PageRequest{Limit: 3, Offset: 5, Total: true})
	t.ok(err, "page by offset")
	equal(t, "items", len(page.Items), 2)
	equal(t, "first item", page.Items[0].ID, "m5")
	equal(t, "has more", page.HasMore, false)
	equal(t, "offset", page.Offset, 5)
	equal(t, "limit", page.Limit, 3)
	if page.Total == nil || *page.Total != 7 {
		t.Fatalf("total: got %v, want 7", page.Total)
	}
	page, err = get(session.PageRequest{Offset: 7})
	t.ok(err, "page past the end")
	equal(t, "items past the end", len(page.Items), 0)
	equal(t, "has more past the end", page.HasMore, false)
}

func messagePageSizes(t *bed) {
	t.numbered("a", session.MaxPageSize+5)
	for limit, want := range map[int]int{0: session.DefaultPageSize, 7: 7, 200: 200, 5000: session.MaxPageSize} {
		page, err := t.store().Messages(t.Context(), "a", session.PageRequest{Limit: limit})
		t.ok(err, "page")
		equal(t, fmt.Sprintf("items of a page of %d", limit), len(page.Items), want)
		equal(t, "limit", page.Limit, want)
		equal(t, "has more", page.HasMore, true)
		if page.Total != nil {
			t.Fatalf("nobody asked for the total")
		}
	}
}

// sized adds messages m0, m1, … with texts of the given sizes to a new session.
func (t *bed) sized(id string, sizes ...int) []session.Message {
	t.Helper()
	t.create(id)
	messages := make([]session.Message, len(sizes))
	for i, size := range sizes {
		messages[i] = user(fmt.Sprintf("m%d", i), strings.Repeat("x", size))
	}
	_, err := session.AppendMessages(t.Context(), t.store(), id, messages)
	t.ok(err, "append")
	return messages
}

func messagePageBytes(t *bed) {
	t.sized("a", 10, 4000, 10, 2000, 2000, 10, 6000, 10)
	for _, c := range []struct {
		request session.PageRequest
		want    string
		more    bool
	}{
		{session.PageRequest{MaxBytes: 1}, "m0", true},
		{session.PageRequest{MaxBytes: 4000}, "m0", true},
		{session.PageRequest{MaxBytes: 5000}, "m0 m1 m2", true},
		{session.PageRequest{MaxBytes: 5000, Limit: 2}, "m0 m1", true},
		{session.PageRequest{MaxBytes: 3000, Offset: 1}, "m1", true},
		{session.PageRequest{MaxBytes: 5000, Offset: 2}, "m2 m3 m4 m5", true},
		{session.PageRequest{MaxBytes: 3000, Offset: 6}, "m6", true},
		{session.PageRequest{MaxBytes: 3000, Offset: 7}, "m7", false},
		{session.PageRequest{MaxBytes: 3000, Offset: 8}, "", false},
		{session.PageRequest{MaxBytes: 1 << 20}, "m0 m1 m2 m3 m4 m5 m6 m7", false},
		{session.PageRequest{}, "m0 m1 m2 m3 m4 m5 m6 m7", false},
	} {
		c.request.Total = true
		page, err := t.store().Messages(t.Context(), "a", c.request)
		t.ok(err, "Messages")
		var ids []string
		for i := range page.Items {
			ids = append(ids, page.Items[i].ID)
		}
		what := fmt.Sprintf("page %+v", c.request)
		equal(t, what, strings.Join(ids, " "), c.want)
		equal(t, what+": has more", page.HasMore, c.more)
		equal(t, what+": has a cursor", page.Next != "", c.more)
		equal(t, what+": offset", page.Offset, c.request.Offset)
		equal(t, what+": limit", page.Limit, c.request.Size())
		equal(t, what+": total", *page.Total, 8)
	}
	for _, size := range []int64{1, 2500, 5000, 1 << 20} {
		got := pages(t, 3, func(p session.PageRequest) (session.Page[session.Message], error) {
			p.MaxBytes = size
			return t.store().Messages(t.Context(), "a", p)
		}, func(m session.Message) string { return m.ID })
		equal(t, fmt.Sprintf("pages of %d bytes", size), got, t.texts("a"))
	}
}

func messagePageBytesLarge(t *bed) {
	const count, size = 6, 1 << 20
	want := t.sized("a", slices.Repeat([]int{size}, count)...)
	seen := 0
	request := session.PageRequest{Limit: session.MaxPageSize, MaxBytes: 4 << 20}
	for range count {
		page, err := t.store().Messages(t.Context(), "a", request)
		t.ok(err, "Messages")
		if n := len(page.Items); n != 3 {
			t.Fatalf("a page of 4 MiB has %d messages of a little more than 1 MiB", n)
		}
		for i := range page.Items {
			if !page.Items[i].Equal(&want[seen]) {
				t.Fatalf("message %d is not as it was sent", seen)
			}
			seen++
		}
		if !page.HasMore {
			break
		}
		request.Cursor = page.Next
	}
	equal(t, "messages", seen, count)
}

func messagePageInvalid(t *bed) {
	t.numbered("a", 1)
	for _, p := range []session.PageRequest{{Cursor: "not a cursor"}, {Cursor: "bm90IGpzb24"}, {Offset: -1}} {
		_, err := t.store().Messages(t.Context(), "a", p)
		t.refused(err, session.ErrInvalid, fmt.Sprintf("page %+v", p))
	}
}

func messagePageGrows(t *bed) {
	t.numbered("a", 4)
	first, err := t.store().Messages(t.Context(), "a", session.PageRequest{Limit: 3})
	t.ok(err, "page")
	_, err = session.AppendMessages(t.Context(), t.store(), "a", []session.Message{user("n4", "x"), user("n5", "x")})
	t.ok(err, "append")
	rest, err := t.store().Messages(t.Context(), "a", session.PageRequest{Limit: 3, Cursor: first.Next})
	t.ok(err, "page")
	var got []string
	for _, m := range rest.Items {
		got = append(got, m.ID)
	}
	equal(t, "the page after", got, []string{"m3", "n4", "n5"})
}

func manyMessages(t *bed) {
	t.numbered("a", 500)
	got := t.texts("a")
	equal(t, "messages", len(got), 500)
	for i, id := range got {
		equal(t, "message", id, fmt.Sprintf("m%d", i))
	}
}
