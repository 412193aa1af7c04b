package stored

import "github.com/helixagents/helix/session"

// DensePage returns an empty page of items that are numbered 1 to total without
// gaps; after is the number before its first item.
func DensePage[T any](request session.PageRequest, total int) (page session.Page[T], after int, err error) {
	if after, err = request.Start(total); err != nil {
		return page, 0, err
	}
	page = session.Page[T]{Items: []T{}, Offset: after, Limit: request.Size()}
	if request.Total {
		page.Total = &total
	}
	return page, after, nil
}

// FinishDense sets whether there are items after the page, and its cursor.
func FinishDense[T any](page *session.Page[T], total int) {
	if last := page.Offset + len(page.Items); last < total && len(page.Items) > 0 {
		page.HasMore = true
		page.Next = session.Position{N: int64(last)}.Cursor()
	}
}
