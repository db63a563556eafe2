// Items of a kernel over elements: (chunk of a row, row).

// The four indices of row `row` of a tensor with these ne.
#define ROW_INDICES(row, ne1, ne2) \
    const long i1 = (row) % (ne1); \
    const long i2 = (row) / (ne1) % (ne2); \
    const long i3 = (row) / ((long)(ne1) * (ne2));

// First and last element of this item, and whether there is work for it.
#define CHUNK_BOUNDS(ne0, chunk) \
    const long first = ITEM_ID(0) * (long)(chunk); \
    const long last = min(first + (long)(chunk), (long)(ne0)); \
    if (first >= (ne0)) return;
